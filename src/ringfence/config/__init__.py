"""TOML in, typed Config out; who may widen and who may only narrow."""
