//! What a file says, without how it says it: the values that patches are defined on, and the two parsers that give them.
//!
//! Mappings keep their order, so that what a patch adds is written in the order in which the patch has it. Two values
//! are equal whatever the order of their keys.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::MAX_DEPTH;

/// A value of JSON or YAML.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plain {
    /// `null`, or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number.
    Number(Number),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Plain>),
    /// A mapping; keys that are no text are taken as the text they are written with.
    Map(IndexMap<String, Plain>),
}

impl Plain {
    /// The value below a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(map) => map.get(key),
            _ => None,
        }
    }

    /// What a scalar says; nothing for lists, mappings and null.
    pub(super) fn as_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Number(number) => Some(number.to_string()),
            Self::Bool(flag) => Some(flag.to_string()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }

    /// Whether lists and mappings are nested deeper than an edit serves.
    pub(super) fn is_too_deep(&self) -> bool {
        fn deeper(value: &Plain, left: usize) -> bool {
            match value {
                Plain::List(items) => left == 0 || items.iter().any(|item| deeper(item, left - 1)),
                Plain::Map(map) => left == 0 || map.values().any(|item| deeper(item, left - 1)),
                _ => false,
            }
        }
        deeper(self, MAX_DEPTH)
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Plain, E> {
        Ok(Plain::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Plain, E> {
        Ok(Plain::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Plain, D::Error> {
        Plain::deserialize(inner)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Plain, E> {
        Ok(Plain::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Plain, E> {
        Ok(Plain::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Plain, E> {
        Ok(Plain::Number(number.into()))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Plain, E> {
        let number = Number::from_i128(number);
        let number = number.ok_or_else(|| E::custom("a number is too large"))?;
        Ok(Plain::Number(number))
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Plain, E> {
        let number = Number::from_u128(number);
        let number = number.ok_or_else(|| E::custom("a number is too large"))?;
        Ok(Plain::Number(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Plain, E> {
        let number = Number::from_f64(number);
        let number = number.ok_or_else(|| E::custom("a number is not finite"))?;
        Ok(Plain::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Plain, E> {
        Ok(Plain::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Plain, E> {
        Ok(Plain::Text(text))
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Plain, E> {
        Err(E::custom("binary values (!!binary) cannot be edited"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Plain, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Plain::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Plain, A::Error> {
        let mut map = IndexMap::new();
        while let Some((key, value)) = entries.next_entry::<String, Plain>()? {
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom("a mapping has the same key twice"));
            }
        }
        Ok(Plain::Map(map))
    }
}

/// The one value of a JSON text.
pub(super) fn json(text: &str) -> Result<Plain, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The documents of a YAML text, without those that are empty or null. Aliases are followed within limits; merge keys
/// (`<<`) stay keys like others, as an edit cannot change what they bring. Without quotes, `yes`, `on` and the like are
/// booleans, as Kubernetes reads them.
pub(super) fn yaml(text: &str) -> Result<Vec<Plain>, String> {
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    options.emit_comments = false;
    options.merge_keys = serde_saphyr::MergeKeyPolicy::AsOrdinary;
    options.non_finite_float_policy = serde_saphyr::NonFiniteFloatPolicy::AsString;
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_json_give_the_same_values_in_their_order() {
        let of_yaml =
            yaml("z: [1, -2, 1.5, yup]\na: {x: null, y: 'true', w: true}\n---\n---\nb: |\n  x\n")
                .unwrap();
        let of_json = json(r#"{"a":{"x":null,"w":true,"y":"true"},"z":[1,-2,1.5,"yup"]}"#).unwrap();
        assert_eq!(of_yaml[0], of_json);
        assert_eq!(of_yaml.len(), 2);
        let Plain::Map(map) = &of_yaml[0] else {
            panic!()
        };
        assert_eq!(map.keys().collect::<Vec<_>>(), ["z", "a"]);
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        assert!(json(r#"{"a":1,"a":2}"#).is_err());
        assert!(yaml("a: 1\na: 2\n").is_err());
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let inner = format!("*a{}", level - 1);
            let items = [inner.as_str(); 10].join(", ");
            bomb.push_str(
                &[
                    "a",
                    &level.to_string(),
                    ": &a",
                    &level.to_string(),
                    " [",
                    &items,
                    "]\n",
                ]
                .concat(),
            );
        }
        assert!(yaml(&bomb).is_err());
    }
}
