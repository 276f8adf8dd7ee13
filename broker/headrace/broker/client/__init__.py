"""The shells of `headrace.broker.wire.client`: they carry its bytes, blocking or asynchronously, and decide nothing."""
