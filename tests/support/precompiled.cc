// Empty: a target needs a source for its precompiled header. See precompiled.h.
