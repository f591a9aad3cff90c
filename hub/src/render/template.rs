//! The templates of a route: compiled and checked when the route is loaded, rendered within bounds.
//!
//! A template is its operator's and trusted; the values that it writes are not, so every value goes through an escape
//! function, and there is no way round it: raw output is turned into escaped output, and partials, decorators, raw
//! blocks and helpers that we do not know are refused when the template is compiled.

use std::fmt;
use std::io;

use handlebars::template::Template;
use handlebars::{Context, Handlebars};

use super::check::check;
use super::helpers::{self, Shape};
use super::rewrite::rewrite;
use super::{branch, markdown, text};
use crate::response::{ErrorType, ResponseError};

/// A template's output ends here; what is left of it is cut to the forge's limits later.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;

const DEFAULT_TITLE: &str = "\
{{#if .Source.SE.Type}}{{.Source.SE.Type}}\
{{#if .Source.SE.Subject.Name}} on {{.Source.SE.Subject.Name}}{{/if}}\
{{else}}Change for {{.Source.ER.Metadata.Name}}{{/if}} ({{.Cluster.Name}})";

const DEFAULT_COMMIT: &str = "\
EventResponse {{.Source.ER.Metadata.Name}} of cluster {{.Cluster.ID}} asks for this change\
{{#if .Source.SE.Type}}, in answer to {{.Source.SE.Type}}{{/if}}.";

const DEFAULT_BODY: &str = "\
EventResponse `{{.Source.ER.Metadata.Name}}` of cluster `{{.Cluster.Name}}` asks for this change.

{{#if .Source.SE.Type}}
- Event: `{{.Source.SE.Type}}`{{#if .Source.SE.Severity}}, severity `{{.Source.SE.Severity}}`{{/if}}
{{/if}}
{{#if .Source.SE.Subject.Name}}
- Subject: {{#if .Source.SE.Subject.Kind}}{{.Source.SE.Subject.Kind}} {{/if}}\
`{{#if .Source.SE.Subject.Namespace}}{{.Source.SE.Subject.Namespace}}/{{/if}}{{.Source.SE.Subject.Name}}`
{{/if}}
{{#if .Source.SE.DetectedAt}}
- Detected: {{date .Source.SE.DetectedAt \"%Y-%m-%d %H:%M:%S UTC\"}}
{{/if}}
{{#each .Change.Files}}
- {{#if this.delete}}Deletes{{else}}Writes{{/if}} `{{this.path}}`
{{/each}}
";

const DEFAULT_GROUP_TITLE: &str = "\
Changes in {{.Cluster.Name}} by route {{.Route.Name}}, {{.Group.Window}} from \
{{date .Group.Start \"%Y-%m-%d %H:%M:%S UTC\"}}";

/// The templates that a route gives; `None` is the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateSources {
    /// `titleTemplate`.
    pub title: Option<String>,
    /// `prTemplate`.
    pub body: Option<String>,
    /// `commitTemplate`.
    pub commit: Option<String>,
    /// `branchTemplate`.
    pub branch: Option<String>,
    /// `group.titleTemplate`.
    pub group_title: Option<String>,
}

/// A template that does not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The field of the route: `prTemplate`, `titleTemplate`, `commitTemplate`, `branchTemplate` or
    /// `group.titleTemplate`.
    pub template: &'static str,
    /// The line in the template, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.template)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for TemplateError {}

/// The compiled templates of a route.
#[derive(Clone, Debug)]
pub struct Templates {
    pub(super) title: Compiled,
    pub(super) body: Compiled,
    pub(super) commit: Compiled,
    /// Only if the route gives one.
    pub(super) branch: Option<Compiled>,
    pub(super) group_title: Compiled,
}

impl Templates {
    /// Compiles and checks the templates of a route.
    pub fn compile(sources: &TemplateSources) -> Result<Self, TemplateError> {
        let compile = |name, source: &Option<String>, default, shape, escape| match source {
            Some(source) => Compiled::new(name, source, true, shape, escape),
            None => Compiled::new(name, default, false, shape, escape),
        };
        let branch = sources.branch.as_ref();
        let branch = branch.map(|source| {
            Compiled::new(
                "branchTemplate",
                source,
                true,
                Shape::OneLine,
                branch::sanitise,
            )
        });
        Ok(Self {
            title: compile(
                "titleTemplate",
                &sources.title,
                DEFAULT_TITLE,
                Shape::OneLine,
                markdown::neutralise,
            )?,
            body: compile(
                "prTemplate",
                &sources.body,
                DEFAULT_BODY,
                Shape::Markdown,
                markdown::neutralise,
            )?,
            commit: compile(
                "commitTemplate",
                &sources.commit,
                DEFAULT_COMMIT,
                Shape::Lines,
                markdown::neutralise,
            )?,
            branch: branch.transpose()?,
            group_title: compile(
                "group.titleTemplate",
                &sources.group_title,
                DEFAULT_GROUP_TITLE,
                Shape::OneLine,
                markdown::neutralise,
            )?,
        })
    }
}

/// What a template came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) text: String,
    /// Whether it was longer than is kept.
    pub(super) cut: bool,
}

/// One template with its helpers and its escape function.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    name: &'static str,
    registry: Handlebars<'static>,
    /// Whether the route gave it.
    pub(super) custom: bool,
}

impl Compiled {
    fn new(
        name: &'static str,
        source: &str,
        custom: bool,
        shape: Shape,
        escape: fn(&str) -> String,
    ) -> Result<Self, TemplateError> {
        let error = |line, message| TemplateError {
            template: name,
            line,
            message,
        };
        let visible: String = source
            .chars()
            .filter(|c| !matches!(c, '\u{fdd0}'..='\u{fdef}'))
            .collect();
        let rewritten =
            rewrite(&visible).map_err(|fault| error(Some(fault.line), fault.message))?;
        let mut template =
            Template::compile_with_name(&rewritten, name.to_owned()).map_err(|fault| {
                let reason = fault.reason().to_string();
                error(fault.pos().map(|(line, _)| line), text::squeeze(&reason))
            })?;
        check(&mut template).map_err(|(line, message)| error(line, message))?;
        let mut registry = Handlebars::new();
        registry.register_escape_fn(escape);
        helpers::register(&mut registry, shape);
        registry.register_template(name, template);
        Ok(Self {
            name,
            registry,
            custom,
        })
    }

    /// Renders, and stops when the output is as long as any use of it can be.
    pub(super) fn render(&self, context: &Context) -> Result<Output, ResponseError> {
        let mut bounded = Bounded {
            bytes: Vec::new(),
            full: false,
        };
        let result = self
            .registry
            .render_with_context_to_write(self.name, context, &mut bounded);
        if let Err(error) = result
            && !bounded.full
        {
            let line = error
                .line_no
                .map(|line| format!(", line {line}"))
                .unwrap_or_default();
            let reason = text::clip(&text::squeeze(&error.reason().to_string()), 300);
            let detail = format!(
                "{}{line}: {reason}; correct the template of the route, then retry",
                self.name
            );
            return Err(ResponseError::new(
                ErrorType::Permanent,
                "TemplateFailed",
                detail,
            ));
        }
        Ok(Output {
            text: String::from_utf8_lossy(&bounded.bytes).into_owned(),
            cut: bounded.full,
        })
    }
}

/// Takes a bounded number of bytes and fails after that.
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_OUTPUT_BYTES - self.bytes.len();
        if bytes.len() > room {
            // A character that is cut in two would be shown as a replacement character.
            let end = (0..=room)
                .rev()
                .find(|end| bytes[*end] & 0xc0 != 0x80)
                .unwrap_or_default();
            self.bytes.extend_from_slice(&bytes[..end]);
            self.full = true;
            return Err(io::Error::other("the output is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
