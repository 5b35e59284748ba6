#!/usr/bin/env python3
"""A tool and a topic over octet 0.3, with the author's kit."""

from attrs import frozen

from broker.extension import Extension

app = Extension("greeter", "1.0.0")


@frozen
class Greeted:
    who: str


greeted = app.topic("greeted", Greeted)  # bus.greeter.greeted


@app.tool
async def greet(who: str) -> str:
    """Greets somebody."""
    await greeted.publish(who=who)
    return f"hello, {who}"


if __name__ == "__main__":
    app.run()
