//! Devices, addresses, routes and rules.
