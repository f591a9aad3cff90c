//! Reads a compiled template before it is used: refuses what would fail or escape the escaping when it is rendered.

use handlebars::template::{HelperTemplate, Parameter, Subexpression, Template, TemplateElement};

/// Line and reason.
pub(super) type Fault = (Option<usize>, String);

/// Blocks, and how many arguments each takes.
const BLOCKS: [(&str, usize, usize); 14] = [
    ("if", 1, 1),
    ("unless", 1, 1),
    ("each", 1, 1),
    ("with", 1, 1),
    ("eq", 2, 2),
    ("ne", 2, 2),
    ("gt", 2, 2),
    ("gte", 2, 2),
    ("lt", 2, 2),
    ("lte", 2, 2),
    ("and", 1, 99),
    ("or", 1, 99),
    ("not", 1, 1),
    ("len", 1, 1),
];

/// Helpers, and how many arguments each takes.
const HELPERS: [(&str, usize, usize); 20] = [
    ("default", 2, 2),
    ("json", 1, 1),
    ("indent", 2, 2),
    ("truncate", 2, 2),
    ("date", 1, 2),
    ("codeblock", 1, 2),
    ("lookup", 2, 2),
    ("lookup_path", 1, 99),
    ("lookup_root", 1, 99),
    ("lookup_this", 1, 99),
    ("eq", 2, 2),
    ("ne", 2, 2),
    ("gt", 2, 2),
    ("gte", 2, 2),
    ("lt", 2, 2),
    ("lte", 2, 2),
    ("and", 1, 99),
    ("or", 1, 99),
    ("not", 1, 1),
    ("len", 1, 1),
];

/// Words of Go's template language that Handlebars would take for fields that are not there.
const GO_WORDS: [&str; 6] = ["end", "range", "else", "define", "template", "block"];

/// Refuses what could fail or escape later, and turns raw output into escaped output.
pub(super) fn check(template: &mut Template) -> Result<(), Fault> {
    let lines: Vec<usize> = template.mapping.iter().map(|mapping| mapping.0).collect();
    for (at, element) in template.elements.iter_mut().enumerate() {
        let line = lines.get(at).copied();
        if let TemplateElement::HtmlExpression(expression) = element {
            *element = TemplateElement::Expression(expression.clone());
        }
        match element {
            TemplateElement::Expression(expression) => {
                check_expression(expression).map_err(|why| (line, why))?;
            }
            TemplateElement::HelperBlock(block) => {
                check_block(block).map_err(|why| (line, why))?;
                for inner in [&mut block.template, &mut block.inverse]
                    .into_iter()
                    .flatten()
                {
                    check(inner)?;
                }
            }
            TemplateElement::RawString(_) | TemplateElement::Comment(_) => {}
            _ => {
                return Err((
                    line,
                    "partials ({{> …}}) and decorators ({{* …}}) are not available".to_owned(),
                ));
            }
        }
    }
    Ok(())
}

fn check_expression(expression: &HelperTemplate) -> Result<(), String> {
    let Some(name) = expression.name.as_name() else {
        return Err(
            "parentheses are for arguments: write {{helper …}} instead of {{(helper …)}}"
                .to_owned(),
        );
    };
    if expression.params.is_empty() && expression.hash.is_empty() {
        if BLOCKS
            .iter()
            .chain(&HELPERS)
            .any(|(helper, ..)| *helper == name)
        {
            return Err(format!(
                "{name} needs an argument; a field of this name is {{{{this.{name}}}}}"
            ));
        }
        return if GO_WORDS.contains(&name) {
            Err(go_word(name))
        } else {
            Ok(())
        };
    }
    if matches!(name, "if" | "unless" | "each" | "with") {
        return Err(format!(
            "{name} is a block: write {{{{#{name} …}}}} … {{{{/{name}}}}}"
        ));
    }
    if GO_WORDS.contains(&name) {
        return Err(go_word(name));
    }
    check_call(name, expression, &HELPERS)
}

fn go_word(name: &str) -> String {
    format!(
        "{name:?} is Go's; templates are Handlebars: {{{{#if …}}}} … {{{{/if}}}}, {{{{#each …}}}} … {{{{/each}}}}"
    )
}

fn check_block(block: &HelperTemplate) -> Result<(), String> {
    let name = block.name.as_name().unwrap_or_default();
    check_call(name, block, &BLOCKS)
}

fn check_call(
    name: &str,
    call: &HelperTemplate,
    known: &[(&str, usize, usize)],
) -> Result<(), String> {
    let Some((_, least, most)) = known.iter().find(|(helper, ..)| *helper == name) else {
        let own = |helper: &str| !helper.starts_with("lookup_");
        let names: Vec<_> = known
            .iter()
            .map(|(helper, ..)| *helper)
            .filter(|helper| own(helper))
            .collect();
        return Err(format!(
            "there is no helper {name:?} here; there are {}",
            names.join(", ")
        ));
    };
    let count = call.params.len();
    if !(*least..=*most).contains(&count) {
        let takes = if least == most {
            least.to_string()
        } else {
            format!("at least {least}")
        };
        return Err(format!("{name} takes {takes} argument(s), not {count}"));
    }
    call.params
        .iter()
        .chain(call.hash.values())
        .try_for_each(check_parameter)
}

fn check_parameter(parameter: &Parameter) -> Result<(), String> {
    let Parameter::Subexpression(Subexpression { element, .. }) = parameter else {
        return Ok(());
    };
    match element.as_ref() {
        TemplateElement::Expression(call) => {
            check_call(call.name.as_name().unwrap_or_default(), call, &HELPERS)
        }
        _ => Err("an argument in parentheses is a helper with its arguments".to_owned()),
    }
}
