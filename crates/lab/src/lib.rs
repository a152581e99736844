//! Test networks in namespaces with link emulation.
