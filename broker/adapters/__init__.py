"""The only package that does IO: processes, files, event loops."""
