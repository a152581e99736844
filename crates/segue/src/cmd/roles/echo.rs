//! The example protocol, whose sockets are named `echo-server` and `echo-client`.

use super::role::{PLAIN, Role};

/// Either side. It is configured by options.
pub(super) static ECHO: Role = Role { name: "echo", file: None, daemon: Some(PLAIN) };
