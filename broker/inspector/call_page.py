"""The inspector's page for calling a tool: a form made from its schema, and the answers so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Button, Input, Label, OptionList, Select, TextArea
from textual.widgets.option_list import Option

from broker.errors import BrokerError
from broker.inspector.event_page import EntryList
from broker.inspector.form import Form, FormField, read_json
from broker.inspector.inspection import InspectedRecord, Inspection, Tool
from broker.inspector.tables import clock_time, plain_title
from broker.wire.quoting import escape

CallTool: TypeAlias = Callable[[str, str, Any], Awaitable[dict[str, Any]]]


class CallPage(Horizontal):
    """Tools on the left, the form and the answers on the right. ``call`` makes the call and gives its record."""

    def __init__(self, inspection: Inspection, call: CallTool) -> None:
        super().__init__()
        self._inspection = inspection
        self._call = call
        self._tools: list[Tool] = []
        self._form = Form(())
        self._shown = 0
        self.open_calls: int = 0
        self.chosen: Tool | None = None
        self.tools: OptionList = OptionList(markup=False, id="tools")
        self.fields: VerticalScroll = VerticalScroll(id="form")
        self.state: Label = Label("", markup=False, id="call-state")
        self.answers: EntryList = EntryList(
            "answers", "time (UTC)", "who", "tool", "ok", "answer", cells=_cells, name="call"
        )

    def compose(self) -> ComposeResult:
        """The tools, the form, the answers."""
        self.tools.border_title = "tools"
        self.fields.border_title = "arguments"
        yield self.tools
        with Vertical():
            yield self.fields
            with Horizontal(id="call-line"):
                yield Button("Call", variant="primary", id="call", disabled=True)
                yield self.state
            yield self.answers

    def show(self) -> None:
        """Show new tools and new answers."""
        tools = self._inspection.tools()
        if tools != self._tools:
            self._tools = tools
            self.tools.clear_options()
            self.tools.add_options(Option(Text(tool.shown), id=_key(tool)) for tool in tools)
            if self.chosen not in tools:
                self.chosen = None
                self.query_one("#call", Button).disabled = True
        new = [entry for entry in self._inspection.calls if entry.number > self._shown]
        if new:
            self._shown = new[-1].number
            self.answers.add(new)

    @on(OptionList.OptionSelected, "#tools")
    async def choose(self, event: OptionList.OptionSelected) -> None:
        """Show the form of a tool."""
        # Not by its place: the list may be another one since the key was pressed.
        tool = next((tool for tool in self._tools if _key(tool) == event.option_id), None)
        if tool is None:
            return
        self.chosen, self._form = tool, Form.from_schema(tool.schema)
        self.fields.border_title = plain_title(f"arguments of {tool.shown}")
        self.state.update("")
        await self.fields.remove_children()
        await self.fields.mount(*self._widgets(tool))
        self.query_one("#call", Button).disabled = False
        inputs = self.fields.query("Input, Select, TextArea")
        (inputs.first() if inputs else self.query_one("#call")).focus()

    def _widgets(self, tool: Tool) -> list[Widget]:
        widgets: list[Widget] = [Label(Text(tool.about), classes="tool-description")]
        if self._form.problem is not None:
            widgets += [Label(self._form.problem, markup=False), TextArea("{}", id="json-arguments")]
        for number, field in enumerate(self._form.fields):
            mark = " *" if field.required else ""
            about = f"  {field.description}" if field.description else ""
            widgets += [
                Label(Text.assemble((f"{escape(field.name)}{mark}", "bold"), f" ({field.type}){about}")),
                _entry(number, field),
            ]
        return widgets

    def _arguments(self) -> Any:
        if self._form.problem is not None:
            return read_json(self.fields.query_one("#json-arguments", TextArea).text)
        return self._form.read({field.name: self._typed(number) for number, field in enumerate(self._form.fields)})

    def _typed(self, number: int) -> str:
        widget = self.fields.query_one(f"#field-{number}")
        if isinstance(widget, Select):
            return "" if widget.selection is None else str(widget.selection)
        assert isinstance(widget, Input)
        return widget.value

    @on(Button.Pressed, "#call")
    @on(Input.Submitted)
    def press(self) -> None:
        """Call the chosen tool with what was typed; a wrong form says what is wrong, and calls nothing."""
        if self.chosen is None:
            return
        try:
            arguments = self._arguments()
        except BrokerError as error:
            self.state.update(str(error))
            return
        self.run_worker(self._run(self.chosen, arguments))

    async def _run(self, tool: Tool, arguments: Any) -> None:
        self.open_calls += 1
        self.state.update(f"calling {tool.shown} ({self.open_calls} open)")
        try:
            record = await self._call(tool.owner, tool.name, arguments)
        finally:
            self.open_calls -= 1
        how = "answered" if record["ok"] else "failed"
        others = f" ({self.open_calls} open)" if self.open_calls else ""
        self.state.update(f"{tool.shown} {how}{others}")


def _key(tool: Tool) -> str:
    return f"{tool.owner}\n{tool.name}"


def _entry(number: int, field: FormField) -> Widget:
    choices = field.choices or (("true", "false") if field.type == "boolean" else ())
    name = f"field-{number}"
    if not choices:
        return Input(field.default, placeholder="" if field.required else "left out", id=name)
    options = [(Text(escape(choice)), choice) for choice in choices]
    if field.default in choices:
        return Select(options, value=field.default, prompt="left out", id=name)
    return Select(options, prompt="left out", id=name)


def _cells(entry: InspectedRecord) -> tuple[str | Text, ...]:
    record = entry.record
    text = entry.line()
    return clock_time(entry.unix_ms), entry.who, str(record["tool"]), "yes" if record["ok"] else "no", text
