//! The helpers of templates beside Handlebars' own: default, json, indent, truncate, date, codeblock.

use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, JsonRender as _, Output, PathAndJson,
    RenderContext, RenderError, RenderErrorReason, ScopedJson,
};
use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::lookup::{Lookup, Start};
use super::{body, markdown, text};

const MAX_INDENT: u64 = 40;

/// What a text with several lines becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Markdown: a fenced code block where it must keep its form, else inert lines.
    Markdown,
    /// Inert lines.
    Lines,
    /// Whatever the escape function makes of it: one line.
    OneLine,
}

/// Adds our helpers to a registry, and takes away what hub operators have no use for.
pub(super) fn register(registry: &mut Handlebars<'_>, shape: Shape) {
    for name in ["log", "raw"] {
        registry.unregister_helper(name);
    }
    registry.register_helper("lookup_path", Box::new(Lookup(Start::Anywhere)));
    registry.register_helper("lookup_root", Box::new(Lookup(Start::Root)));
    registry.register_helper("lookup_this", Box::new(Lookup(Start::This)));
    registry.register_helper("default", Box::new(ValueHelper(default)));
    registry.register_helper("truncate", Box::new(ValueHelper(truncate)));
    registry.register_helper("date", Box::new(ValueHelper(date)));
    registry.register_helper(
        "json",
        Box::new(TextHelper {
            text: json,
            form: Form::Code,
            shape,
        }),
    );
    registry.register_helper(
        "codeblock",
        Box::new(TextHelper {
            text: codeblock,
            form: Form::Code,
            shape,
        }),
    );
    registry.register_helper(
        "indent",
        Box::new(TextHelper {
            text: indent,
            form: Form::Indented,
            shape,
        }),
    );
}

/// A helper that gives a value, which is escaped where it is written.
struct ValueHelper(fn(&[PathAndJson<'_>]) -> Result<Value, String>);

impl HelperDef for ValueHelper {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        (self.0)(helper.params())
            .map(ScopedJson::Derived)
            .map_err(|why| failed(helper, &why))
    }
}

fn failed(helper: &Helper<'_>, why: &str) -> RenderError {
    RenderErrorReason::Other(format!("{}: {why}", helper.name())).into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Code,
    Indented,
}

/// A text of several lines and the language it is in.
struct Lines {
    text: String,
    language: String,
    indent: usize,
}

/// A helper that writes several lines; as an argument of another helper it is a plain value.
struct TextHelper {
    text: fn(&[PathAndJson<'_>]) -> Result<Lines, String>,
    form: Form,
    shape: Shape,
}

impl HelperDef for TextHelper {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let lines = (self.text)(helper.params()).map_err(|why| failed(helper, &why))?;
        Ok(ScopedJson::Derived(Value::String(lines.text)))
    }

    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let lines = (self.text)(helper.params()).map_err(|why| failed(helper, &why))?;
        let written = match (self.shape, self.form) {
            (Shape::OneLine, _) => registry.get_escape_fn()(&lines.text),
            (Shape::Markdown, Form::Code) => body::code_block(&lines.text, &lines.language),
            (Shape::Lines, Form::Code) => markdown::neutralise_lines(&lines.text, "    "),
            (_, Form::Indented) => {
                markdown::neutralise_lines(&lines.text, &" ".repeat(lines.indent))
            }
        };
        Ok(out.write(&written)?)
    }
}

fn parameter<'p>(parameters: &'p [PathAndJson<'_>], at: usize) -> &'p Value {
    parameters.get(at).map_or(&Value::Null, PathAndJson::value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "has the signature of the other helpers"
)]
fn default(parameters: &[PathAndJson<'_>]) -> Result<Value, String> {
    let value = parameter(parameters, 0);
    Ok(if is_empty(value) {
        parameter(parameters, 1)
    } else {
        value
    }
    .clone())
}

fn size(parameters: &[PathAndJson<'_>]) -> Result<u64, String> {
    let number = parameter(parameters, 0);
    number.as_u64().ok_or_else(|| {
        format!(
            "the first argument is a number, not {}",
            text::clip(&number.to_string(), 40)
        )
    })
}

fn truncate(parameters: &[PathAndJson<'_>]) -> Result<Value, String> {
    let limit = usize::try_from(size(parameters)?).unwrap_or(usize::MAX);
    Ok(text::clip(&parameter(parameters, 1).render(), limit).into())
}

/// A time of RFC 3339, in UTC and in the given form; what is no time stays as it is.
fn date(parameters: &[PathAndJson<'_>]) -> Result<Value, String> {
    let value = parameter(parameters, 0);
    let Some(time) = value
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
    else {
        return Ok(value.clone());
    };
    let form = parameter(parameters, 1).as_str().unwrap_or("%Y-%m-%d");
    let formatted = strtime::format(form, &time.to_zoned(TimeZone::UTC));
    formatted
        .map(Value::from)
        .map_err(|error| format!("the form {form:?}: {error}"))
}

fn json(parameters: &[PathAndJson<'_>]) -> Result<Lines, String> {
    let text = serde_json::to_string_pretty(parameter(parameters, 0))
        .map_err(|error| error.to_string())?;
    Ok(Lines {
        text,
        language: "json".to_owned(),
        indent: 0,
    })
}

fn codeblock(parameters: &[PathAndJson<'_>]) -> Result<Lines, String> {
    let value = parameter(parameters, 0);
    let text = match value {
        Value::Array(_) | Value::Object(_) => json(parameters)?.text,
        plain => plain.render(),
    };
    let language = parameter(parameters, 1)
        .as_str()
        .unwrap_or_default()
        .to_owned();
    Ok(Lines {
        text,
        language,
        indent: 0,
    })
}

fn indent(parameters: &[PathAndJson<'_>]) -> Result<Lines, String> {
    let indent = usize::try_from(size(parameters)?.min(MAX_INDENT)).unwrap_or_default();
    Ok(Lines {
        text: parameter(parameters, 1).render(),
        language: String::new(),
        indent,
    })
}
