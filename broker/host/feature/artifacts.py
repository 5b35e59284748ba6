"""What one process generation may publish: counted and measured before anything is read or decoded.

Source: octet notes, section 5 (``artifact/publish``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from broker.errors import InvalidParamsError, ResourceExhaustedError
from broker.limits import (
    MAX_INLINE_ARTIFACT_BYTES,
    MAX_PUBLISHED_ARTIFACT_BYTES,
    MAX_PUBLISHED_ARTIFACTS,
    MAX_PUBLISHED_ARTIFACTS_BYTES,
)
from broker.wire.feature.models import ArtifactPublication
from broker.wire.jsonrpc import Absent


class ArtifactLedger:
    """Room taken by the artifacts of one generation, published or on their way, and the ids of the published ones."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._ids: set[str] = set()

    def has(self, artifact_id: str) -> bool:
        """Whether this generation published an artifact of this id."""
        return artifact_id in self._ids

    def reserve(self, publication: ArtifactPublication) -> None:
        """Take room for a publication. Raises for a bound that it would pass, or for not exactly one of its sources."""
        inline = not isinstance(publication.data, Absent)
        if inline is not isinstance(publication.path, Absent):
            raise InvalidParamsError("artifact/publish: exactly one of data and path is needed", path="data")
        for limit, observed, maximum in (
            ("MAX_PUBLISHED_ARTIFACT_BYTES", publication.size, MAX_PUBLISHED_ARTIFACT_BYTES),
            ("MAX_INLINE_ARTIFACT_BYTES", publication.size if inline else 0, MAX_INLINE_ARTIFACT_BYTES),
            ("MAX_PUBLISHED_ARTIFACTS", self._count + 1, MAX_PUBLISHED_ARTIFACTS),
            ("MAX_PUBLISHED_ARTIFACTS_BYTES", self._bytes + publication.size, MAX_PUBLISHED_ARTIFACTS_BYTES),
        ):
            if observed > maximum:
                raise ResourceExhaustedError(
                    f"artifact/publish: over a bound ({limit}: observed {observed}, maximum {maximum})",
                    path="size",
                    limit=limit,
                    observed=observed,
                    maximum=maximum,
                )
        self._count += 1
        self._bytes += publication.size

    def give_back(self, publication: ArtifactPublication) -> None:
        """The publication failed: its room is free again."""
        self._count -= 1
        self._bytes -= publication.size

    def publish(self, artifact_id: str) -> None:
        """The publication is kept under this id."""
        self._ids.add(artifact_id)


def decode_inline(publication: ArtifactPublication) -> bytes:
    """The bytes of an inline artifact; :class:`~broker.errors.InvalidParamsError` unless they are as declared."""
    assert isinstance(publication.data, str)
    try:
        data = base64.b64decode(publication.data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParamsError("artifact/publish: data is not base64", path="data") from None
    if len(data) != publication.size:
        raise InvalidParamsError(
            f"artifact/publish: data has {len(data)} bytes, declared are {publication.size}",
            path="size",
            observed=len(data),
        )
    if hashlib.sha256(data).hexdigest() != publication.sha256:
        raise InvalidParamsError("artifact/publish: data has another digest than declared", path="sha256")
    return data
