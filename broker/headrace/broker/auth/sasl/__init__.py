"""SASL as Kafka speaks it: pure machines for both sides of PLAIN, SCRAM and OAUTHBEARER.

A machine is given what the other side sent, and says what to send back; it knows no socket, no request and no clock, and
draws no random number: nonces and salts are handed in. `exchange` has what they share; `messages` the grammar of SCRAM,
`credentials` what a server keeps of a password, `scram`, `plain` and `oauthbearer` both sides of each mechanism,
`signed_tokens` the check of a bearer token against the keys of its issuer.
"""
