//! The seed's tables as data, compared with the defaults and mappings of the code.
