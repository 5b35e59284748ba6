"""A provider with one model, for extensions that stream."""

from __future__ import annotations

from broker.wire.octet.provider_models import (
    ProviderAuthRequirement,
    ProviderDefinition,
    ProviderModelCapabilities,
    ProviderModelDefinition,
)

PROVIDER = ProviderDefinition(id="echo", label="Echo", auth=ProviderAuthRequirement(kind="none"))
MODEL = ProviderModelDefinition(
    id="small",
    api_name="small",
    protocol="openai_chat",
    context_window=100,
    max_output_tokens=10,
    capabilities=ProviderModelCapabilities(
        tools=False, parallel_tool_calls=False, structured_output=False, reasoning=False
    ),
)
