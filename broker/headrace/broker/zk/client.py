"""The only file that knows kazoo: requests become awaitables, watches and session events become calls on the loop.

Invariants: no callback runs outside the broker's loop; every request that ZooKeeper's absence interrupted is sent again
once the session is back, until `close`; what a caller must know about such a repetition is in each method.
"""
