"""The demo of a checkout: the whole pipeline on this machine, a real access log through it, the audit's verdict."""
