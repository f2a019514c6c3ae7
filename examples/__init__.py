"""Examples: small programs that use petastore as its users do. Each is run by the tests."""
