//! UDP sockets with kernel timestamps.
