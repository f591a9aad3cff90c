//! Spoils what a program is to read: bytes anywhere, or, where it is JSON, its values and its shape.
//!
//! The same seed spoils the same bytes in the same way, so that what was found can be found again.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

/// Spoils a body.
pub fn mangle(body: &[u8], seed: u64) -> Vec<u8> {
    let rng = &mut StdRng::seed_from_u64(seed);
    let document = serde_json::from_slice(body).ok();
    let Some(mut document) = document.filter(|_| rng.random_ratio(4, 5)) else {
        return mangle_bytes(body, rng);
    };
    for _ in 0..rng.random_range(1..=3) {
        mangle_json(&mut document, rng);
    }
    document.to_string().into_bytes()
}

/// Spoils bytes, whatever they are.
pub fn mangle_bytes(body: &[u8], rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = body.to_vec();
    let from = rng.random_range(0..=bytes.len());
    let to = (from + rng.random_range(0..64)).min(bytes.len());
    match rng.random_range(0..5) {
        0 => bytes.truncate(from),
        1 => drop(bytes.drain(from..to)),
        2 => {
            let again = bytes[from..to].to_vec();
            bytes.splice(from..from, again);
        }
        3 => drop(bytes.splice(from..to, [0xff, 0x00, b'"', b'{'])),
        _ => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
    }
    bytes
}

fn mangle_json(document: &mut Value, rng: &mut StdRng) {
    let mut places = Vec::new();
    list_places(document, String::new(), &mut places);
    let (Some(place), Some(other)) = (places.choose(rng), places.choose(rng)) else {
        return;
    };
    let stranger = document.pointer(other).cloned().unwrap_or_default();
    let new = match rng.random_range(0..12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(u64::MAX),
        5 => json!(""),
        6 => json!("x".repeat(100_000)),
        7 => json!("../\u{0}\u{202e}\r\n<b>"),
        8 => [json!([]), json!({})]
            .choose(rng)
            .cloned()
            .unwrap_or_default(),
        9 => (0..100).fold(json!(1), |inner, _| json!([inner])),
        // What has the right form and the wrong place is the hardest to tell.
        _ => stranger,
    };
    if rng.random_ratio(1, 6) {
        remove(document, place);
    } else if let Some(value) = document.pointer_mut(place) {
        *value = new;
    }
}

fn remove(document: &mut Value, place: &str) {
    let Some((parent, key)) = place.rsplit_once('/') else {
        return;
    };
    match document.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(list)) => {
            if let Ok(index) = key.parse::<usize>() {
                list.remove(index);
            }
        }
        _ => {}
    }
}

/// JSON pointers of all values below.
fn list_places(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                list_places(inner, format!("{at}/{key}"), places);
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                list_places(inner, format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
    places.push(at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_spoils_in_one_way_and_most_seeds_spoil() {
        let body = json!({ "data": { "a": [1, "x", null] }, "errors": [] }).to_string();
        let body = body.as_bytes();
        let spoiled = |seed: &u64| mangle(body, *seed) != body;
        assert!((0..200).filter(spoiled).count() > 150);
        for seed in 0..200 {
            assert_eq!(mangle(body, seed), mangle(body, seed));
            mangle(b"", seed);
        }
    }
}
