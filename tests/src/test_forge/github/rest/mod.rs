//! REST.

use anyhow::Result;
use axum::http::{HeaderMap, Method, Uri};
use serde_json::Value;

use super::http::refusal;
use super::server::Context;
use crate::test_forge::faults::Reply;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    path: Vec<String>,
    body: Value,
}

impl Request {
    /// Reads a request; the error is about its body.
    pub fn new(
        method: Method,
        path: &str,
        _uri: &Uri,
        body: &[u8],
        _headers: &HeaderMap,
    ) -> Result<Self> {
        let body = match body {
            [] => Value::Null,
            body => serde_json::from_slice(body)?,
        };
        let path = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        Ok(Self { method, path, body })
    }
}

/// Does it.
pub fn answer(_context: &Context, request: &Request) -> Reply {
    let _ = (&request.method, &request.path, &request.body);
    refusal(404, "Not Found")
}
