"""What each request of an extension is answered with, out of the host's services.

A handler is a generator: it yields a service's reply, gets its value (or its error) back when that settles, and returns
the result, whose types and bounds the connection judges by the method's row. Which method leads to which handler is in
:data:`HANDLERS`; the rest are operations whose members the host's service reads. Source: octet notes, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from broker.errors import ArtifactError, InvalidParamsError, UnavailableError
from broker.host.feature.artifacts import decode_inline
from broker.host.feature.services import PublishedArtifact, ServiceCall
from broker.wire.feature.models import ArtifactPublication
from broker.wire.feature.refusals import NO_SECRET, RefusalKind
from broker.wire.jsonrpc import Absent
from broker.wire.odek.artifact_ref import ArtifactRef
from broker.wire.quoting import quote

if TYPE_CHECKING:
    from broker.host.feature.generation import FeatureGeneration

Steps: TypeAlias = Generator[Any, Any, dict[str, Any]]
Handler: TypeAlias = Callable[["FeatureGeneration", Any, ServiceCall, Any], Steps]


class DocumentedRefusalError(UnavailableError):
    """A refusal with a code of its own."""

    def __init__(self, detail: str, kind: RefusalKind) -> None:
        super().__init__(detail)
        self.kind = kind


def confirm(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``confirmation/request``."""
    return {"confirmed": (yield service.confirm(call, params))}


def ask(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``input/request``."""
    return {"value": (yield service.ask(call, params))}


def evaluate(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``policy/evaluate``: a token that is good is an approval; without one the policy decides.

    Tokens are only given where ``approvals`` was negotiated, so that no token is good anywhere else.
    """
    if not isinstance(params.approval_token, Absent):
        generation.approvals.redeem(params.approval_token, params.intent)
        return {"decision": "allow"}
    decision = yield service.evaluate(call, params.intent)
    if decision == "allow" and generation.has("approvals"):
        return {"decision": decision, "approval_token": generation.approvals.issue(params.intent)}
    return {"decision": decision}


def get_secret(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``secret/get``: only names of the manifest, and only what the host's broker gives."""
    if params.name not in generation.manifest.capabilities.secrets:
        raise InvalidParamsError(f"the manifest does not declare the secret {quote(params.name)}", path="name")
    value = yield service.get(call, params.name)
    if value is None:
        raise DocumentedRefusalError(f"no secret {quote(params.name)} for this extension", NO_SECRET)
    return {"value": value}


def register_tools(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``tools/register``."""
    change = generation.catalogue.registered(params.tools)
    yield service.change(call, change)
    return generation.change_catalogue(change)


def unregister_tools(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``tools/unregister``."""
    change = generation.catalogue.unregistered(params.names)
    yield service.change(call, change)
    return generation.change_catalogue(change)


def publish(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """``artifact/publish``: room is taken first, and given back if the artifact is not kept."""
    generation.ledger.reserve(params)
    kept = False
    try:
        data = decode_inline(params) if isinstance(params.path, Absent) else (yield _read_file(generation, params))
        artifact = PublishedArtifact(mime_type=params.mime_type, sha256=params.sha256, data=data)
        artifact_id = yield service.store(call, artifact)
        if type(artifact_id) is not str:
            raise TypeError(f"store gave {type(artifact_id).__name__}, which is no artifact id")
        generation.ledger.publish(artifact_id)
        kept = True
    finally:
        if not kept:
            generation.ledger.give_back(params)
    return {"artifact_id": artifact_id}


def control_session(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """The ``session/*`` methods of ``session_control_v1`` and ``session_compaction_v1``."""
    arguments = (params.session_id,) if call.operation == "switch" else ()
    return {"session_id": (yield getattr(service, call.operation)(call, *arguments))}


def operate(generation: FeatureGeneration, service: Any, call: ServiceCall, params: Any) -> Steps:
    """Any other method: the host's service knows its members."""
    result = yield service.run(call, params)
    return {} if result is None else dict(result)


HANDLERS: Final[Mapping[str, Handler]] = {
    "confirmation/request": confirm,
    "input/request": ask,
    "policy/evaluate": evaluate,
    "secret/get": get_secret,
    "tools/register": register_tools,
    "tools/unregister": unregister_tools,
    "artifact/publish": publish,
    **{
        f"session/{operation}": control_session
        for operation in ("wait_for_idle", "create", "fork", "switch", "reload", "compact")
    },
}


def _read_file(generation: FeatureGeneration, publication: ArtifactPublication) -> Any:
    """The verified bytes of a published file in the workspace or the scratch directory, read where it may block."""
    session = generation.session
    assert isinstance(publication.path, str)
    path = str(PurePosixPath(session.workspace) / publication.path)
    ref = ArtifactRef(
        id=publication.sha256[:12],
        uri=f"file://{path}",
        media_type=publication.mime_type,
        path=path,
        sha256=publication.sha256,
        size_bytes=publication.size,
    )
    roots = [session.workspace] if generation.scratch is None else [session.workspace, generation.scratch]

    def read() -> bytes:
        try:
            return session.driver.artifact_files(roots).read(ref, 0, publication.size)[0]
        except ArtifactError as error:
            raise InvalidParamsError(f"artifact/publish: {error}", path="path") from error

    return session.driver.offload(read)
