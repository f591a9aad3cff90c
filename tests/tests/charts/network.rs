//! What the charts' policies of the network let out, and the addresses that they and helm's notes are about.

use anyhow::{Context as _, Result};
use nabu_tests::charts::{folder, helm, object, objects, path};
use nabu_tests::process::repository_root;
use serde_json::{Value, json};

/// What helm renders for a case of the matrix with more values.
fn rendered(chart: &str, case: &str, set: &[&str]) -> Result<Vec<Value>> {
    let values = repository_root().join("tests/fixtures/charts").join(chart);
    let values = values.join(format!("{case}.yaml"));
    let folder = folder(chart);
    let mut arguments = vec!["template", "r", path(&folder)?, "--values", path(&values)?];
    for value in set {
        arguments.extend(["--set", value]);
    }
    objects(&helm(&arguments)?)
}

/// The ports of each rule for what goes out.
fn ports_out(objects: &[Value]) -> Result<Vec<Vec<Value>>> {
    let policy = object(objects, "NetworkPolicy")?;
    let rules = policy["spec"]["egress"].as_array().context("no rules")?;
    let ports = |rule: &Value| {
        let ports = rule["ports"].as_array().into_iter().flatten();
        ports.map(|one| one["port"].clone()).collect()
    };
    Ok(rules.iter().map(ports).collect())
}

#[test]
fn the_port_of_the_hub_is_that_of_its_address_or_of_https() -> Result<()> {
    for (url, port) in [
        ("https://nabu-hub.example.com:8443", 8443),
        ("https://nabu-hub.example.com:8443/", 8443),
        ("https://nabu-hub.example.com", 443),
        ("https://192.0.2.7", 443),
        ("https://192.0.2.7:9443", 9443),
        ("https://hub2", 443),
        ("https://nabu-hub-01/", 443),
        ("https://nabu-hub-01:8443/", 8443),
        ("https://[2001:db8::7]", 443),
        ("https://[2001:db8::7]/", 443),
        ("https://[2001:db8::7]:8443", 8443),
    ] {
        let objects = rendered("nabu-agent", "default", &[&format!("hub.url={url}")])?;
        let out = ports_out(&objects)?;
        assert!(out.contains(&vec![json!(port)]), "{url}: {out:?}");
        assert_eq!(out.len(), 3, "DNS, API server, hub: {out:?}");
    }
    Ok(())
}

#[test]
fn the_port_of_a_proxy_is_that_of_its_address_or_of_http() -> Result<()> {
    for (url, port) in [
        ("http://proxy.example.com:3128", 3128),
        ("http://proxy.example.com:3128/", 3128),
        ("http://proxy7", 80),
        ("http://192.0.2.9/", 80),
        ("http://somebody:secret7@192.0.2.9", 80),
        ("http://[2001:db8::9]", 80),
        ("http://[2001:db8::9]:3128", 3128),
    ] {
        let objects = rendered("nabu-agent", "default", &[&format!("proxy.url={url}")])?;
        let out = ports_out(&objects)?;
        assert!(out.contains(&vec![json!(port)]), "{url}: {out:?}");
    }
    Ok(())
}

#[test]
fn the_hub_gets_out_to_its_proxies() -> Result<()> {
    for (set, ports) in [
        ("proxy.https=http://proxy.example.com:3128", vec![3128]),
        ("proxy.https=http://proxy.example.com:3128/", vec![3128]),
        ("proxy.https=proxy.example.com:3128", vec![3128]),
        ("proxy.https=http://somebody:secret7@proxy7", vec![80]),
        ("proxy.https=https://192.0.2.9", vec![443]),
        ("proxy.http=http://[2001:db8::9]", vec![80]),
        (
            "proxy.https=http://a:3128,proxy.http=http://b:3129",
            vec![3128, 3129],
        ),
        (
            "proxy.https=http://a:3128,proxy.http=http://b:3128",
            vec![3128],
        ),
        (
            "proxy.https=http://a:3128,networkPolicy.proxy.ports={8888}",
            vec![8888],
        ),
    ] {
        let out = ports_out(&rendered("nabu-hub", "default", &[set])?)?;
        let wanted: Vec<Value> = ports.into_iter().map(Value::from).collect();
        assert_eq!(out.last(), Some(&wanted), "{set}: {out:?}");
        assert!(out.contains(&vec![json!(443)]), "forges: {out:?}");
    }
    let out = ports_out(&rendered("nabu-hub", "default", &["proxy.noProxy=a"])?)?;
    assert_eq!(out.len(), 3, "DNS, API server, forges: {out:?}");
    Ok(())
}

#[test]
fn ports_of_pods_can_be_named_where_services_have_others() -> Result<()> {
    for chart in ["nabu-hub", "nabu-agent"] {
        for (set, dns) in [
            ("log.level=info", 53),
            ("networkPolicy.dnsPorts={5353}", 5353),
        ] {
            let out = ports_out(&rendered(chart, "default", &[set])?)?;
            assert_eq!(out[0], vec![json!(dns); 2], "UDP and TCP: {out:?}");
        }
    }
    let set = "networkPolicy.hub.ports={8443,9443},hub.url=https://hub";
    let out = ports_out(&rendered("nabu-agent", "default", &[set])?)?;
    assert_eq!(out[2], vec![json!(8443), json!(9443)], "{out:?}");
    Ok(())
}

/// The argument of a flag that is given once.
fn argument(objects: &[Value], flag: &str) -> Result<String> {
    let container = &object(objects, "Deployment")?["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().context("no arguments")?;
    let mut found = arguments
        .iter()
        .filter_map(|argument| argument.as_str()?.strip_prefix(&format!("{flag}=")));
    let argument = found.next().context("not given")?.to_owned();
    anyhow::ensure!(found.next().is_none(), "{flag} is given twice");
    Ok(argument)
}

#[test]
fn cluster_add_prints_the_address_by_which_agents_get_in() -> Result<()> {
    let route = "agents.tlsRoute.enabled=true,agents.tlsRoute.parentRefs[0].name=edge,\
        agents.tlsRoute.hostnames={nabu.example.com,other.example.com}";
    let names = "tls.builtin.serverNames={admin.example.com,192.0.2.7}";
    for (set, url) in [
        (vec![], "https://r-nabu-hub-agents.default.svc:8443"),
        (vec![names], "https://admin.example.com:8443"),
        (
            vec![names, "agents.service.port=443"],
            "https://admin.example.com:443",
        ),
        (
            vec!["tls.builtin.serverNames={192.0.2.7}"],
            "https://192.0.2.7:8443",
        ),
        (
            vec!["tls.builtin.serverNames={2001:db8::7}"],
            "https://[2001:db8::7]:8443",
        ),
        (
            vec![
                names,
                "agents.service.type=NodePort,agents.service.nodePort=30443",
            ],
            "https://admin.example.com:30443",
        ),
        (
            vec!["agents.service.type=NodePort,agents.service.nodePort=30443"],
            "https://r-nabu-hub-agents.default.svc:8443",
        ),
        (vec![route], "https://nabu.example.com"),
        (vec![route, names], "https://nabu.example.com"),
        (
            vec![
                route,
                names,
                "tls.builtin.agentsUrl=https://edge.example.com:9443",
            ],
            "https://edge.example.com:9443",
        ),
    ] {
        let objects = rendered("nabu-hub", "default", &set)?;
        assert_eq!(argument(&objects, "--agents-url")?, url, "{set:?}");
    }
    Ok(())
}
