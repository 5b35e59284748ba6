"""The octet extension wire, API 0.3: contract, records, negotiation and the connection's state machine."""
