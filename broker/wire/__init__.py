"""Sans-IO protocols: bytes in, typed messages out, and the reverse. Nothing here does IO or reads a clock."""
