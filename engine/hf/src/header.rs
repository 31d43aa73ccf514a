//! The one check of a safetensors header that the reference reader lacks: no duplicate keys. JSON
//! readers disagree on which of two entries counts, so such a file has different weights in
//! different programs.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys).map(|()| UniqueKeys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if let Some(twice) = seen.replace(key) {
                return Err(serde::de::Error::custom(format!(
                    "duplicate key \"{twice}\""
                )));
            }
        }
        Ok(())
    }
}

/// Refuses a header in which a tensor's name occurs twice.
pub fn check_unique_names(header: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<UniqueKeys>(header).map(|_| ())
}
