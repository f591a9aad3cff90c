{{- define "nabu-hub.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters, so that a suffix still fits into a name of 63; and what a Service may be called: the name of a release may have dots
and begin with a digit, that of a Service may not. */}}
{{- define "nabu-hub.fullname" -}}
{{- $fullname := printf "%s-%s" .Release.Name (include "nabu-hub.name" .) }}
{{- if .Values.fullnameOverride }}
{{- $fullname = .Values.fullnameOverride }}
{{- else if contains (include "nabu-hub.name" .) .Release.Name }}
{{- $fullname = .Release.Name }}
{{- end }}
{{- if not (regexMatch "^[a-z]" $fullname) }}
{{- fail (printf "objects would be called %s, and the name of a Service begins with a letter: set fullnameOverride" $fullname) }}
{{- end }}
{{- $fullname | replace "." "-" | trunc 50 | trimAll "-" }}
{{- end }}

{{- define "nabu-hub.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nabu-hub.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of an object, each key once: the recommended ones, the common ones and its own, of which the last one counts, but never
instead of those that selectors and Helm go by. Takes the root context, or a list of it and a map. */}}
{{- define "nabu-hub.labels" -}}
{{- $root := . }}
{{- $own := dict }}
{{- if kindIs "slice" . }}
{{- $root = index . 0 }}
{{- $own = index . 1 }}
{{- end }}
{{- $fixed := dict "app.kubernetes.io/name" (include "nabu-hub.name" $root) "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $recommended := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/component" "hub" "app.kubernetes.io/part-of" "nabu"
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") }}
{{- toYaml (mergeOverwrite (dict) $recommended ($root.Values.commonLabels | default dict) $own $fixed) }}
{{- end }}

{{/* Labels of the Pod of `helm test`. It has another name than the program, so that no Service and no policy selects it. */}}
{{- define "nabu-hub.testLabels" -}}
{{- $labels := fromYaml (include "nabu-hub.labels" (list . (dict "app.kubernetes.io/component" "test"))) }}
{{- toYaml (set $labels "app.kubernetes.io/name" (printf "%s-test" (include "nabu-hub.name" .))) }}
{{- end }}

{{/* Annotations of an object: the common ones and its own. Takes a list of the root context and a map. */}}
{{- define "nabu-hub.annotations" -}}
{{- $root := index . 0 -}}
{{- with mergeOverwrite (dict) $root.Values.commonAnnotations (index . 1) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "nabu-hub.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "nabu-hub.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "nabu-hub.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "nabu-hub.configNamespace" -}}
{{- default .Release.Namespace .Values.config.namespace }}
{{- end }}

{{- define "nabu-hub.watchesObjects" -}}
{{- if eq .Values.config.source "objects" }}
{{- if .Values.config.existingSecrets }}
{{- fail "config.existingSecrets is for config.source=folder, and with config.source=objects every Secret of the namespace can be named by a route: leave it out, or set config.source=folder" }}
{{- end }}
{{- print "true" }}
{{- end }}
{{- end }}

{{- define "nabu-hub.tlsSecretName" -}}
{{- if .Values.tls.secretName }}
{{- .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled }}
{{- printf "%s-tls" (include "nabu-hub.fullname" .) }}
{{- else }}
{{- fail "nabu-hub needs its certificates: with tls.mode=files, set tls.secretName to a Secret with ca.crt, tls.crt and tls.key (nabuctl pki makes these files), or tls.certManager.enabled=true" }}
{{- end }}
{{- end }}

{{- define "nabu-hub.certifies" -}}
{{- if eq .Values.tls.mode "builtin" }}
{{- if or .Values.tls.secretName .Values.tls.certManager.enabled }}
{{- fail "tls.secretName and tls.certManager are for tls.mode=files, and with tls.mode=builtin the hub makes its own certificate: set tls.mode=files, or leave them out" }}
{{- end }}
{{- print "true" }}
{{- else if or .Values.tls.builtin.encryptionKeySecret .Values.tls.builtin.authoritySecret .Values.tls.builtin.oldEncryptionKeySecret .Values.tls.builtin.serverNames .Values.tls.builtin.agentsUrl }}
{{- fail "tls.builtin is for tls.mode=builtin, and with tls.mode=files the hub certifies nobody: leave out what is set in tls.builtin (with cert-manager, names go into tls.certManager.dnsNames)" }}
{{- end }}
{{- end }}

{{/* The arguments that name the hub's authority, as a list in YAML. */}}
{{- define "nabu-hub.authorityArguments" -}}
{{- $builtin := .Values.tls.builtin }}
{{- if and $builtin.authoritySecret (or $builtin.encryptionKeySecret $builtin.oldEncryptionKeySecret) }}
{{- fail "tls.builtin.authoritySecret and tls.builtin.encryptionKeySecret exclude each other: an authority of your own is not kept in the database, so nothing is encrypted; give one of them" }}
{{- else if $builtin.authoritySecret }}
{{- toYaml (list "--ca-cert-file=/etc/nabu/ca/tls.crt" "--ca-key-file=/etc/nabu/ca/tls.key") }}
{{- else if $builtin.encryptionKeySecret }}
{{- $old := ternary (list "--ca-old-encryption-key-file=/etc/nabu/ca-old/key") list (ne $builtin.oldEncryptionKeySecret "") }}
{{- toYaml (concat (list "--ca-encryption-key-file=/etc/nabu/ca/key") $old) }}
{{- else }}
{{- fail "nabu-hub needs the key that its authority is encrypted by: kubectl create secret generic nabu-hub-ca-key --from-literal=key=\"$(openssl rand -base64 32)\", then set tls.builtin.encryptionKeySecret=nabu-hub-ca-key (or tls.builtin.authoritySecret for an authority of your own, or tls.mode=files)" }}
{{- end }}
{{- end }}

{{/* Names that the hub's certificate carries, as a list in YAML; those from outside come first. */}}
{{- define "nabu-hub.serverNames" -}}
{{- $fullname := include "nabu-hub.fullname" . }}
{{- $names := concat .Values.tls.builtin.serverNames .Values.agents.tlsRoute.hostnames }}
{{- range list "agents" "admin" }}
{{- $names = append $names (printf "%s-%s.%s.svc" $fullname . $.Release.Namespace) }}
{{- $names = append $names (printf "%s-%s.%s" $fullname . $.Release.Namespace) }}
{{- end }}
{{- toYaml (uniq $names) }}
{{- end }}

{{/* Whether `nabuctl cluster add` can print an address that leads here from outside of the cluster. */}}
{{- define "nabu-hub.reachedFromOutside" -}}
{{- if or .Values.tls.builtin.agentsUrl .Values.agents.tlsRoute.enabled .Values.tls.builtin.serverNames }}true{{ end }}
{{- end }}

{{/* The address that agents dial. A Gateway listens on the port of https, whatever the port of the Service behind it is. */}}
{{- define "nabu-hub.agentsUrl" -}}
{{- if .Values.tls.builtin.agentsUrl }}
{{- .Values.tls.builtin.agentsUrl }}
{{- else if .Values.agents.tlsRoute.enabled }}
{{- printf "https://%s" (include "nabu-hub.routeHostname" .) }}
{{- else }}
{{- $name := first (fromYamlArray (include "nabu-hub.serverNames" .)) }}
{{- $port := .Values.agents.service.port }}
{{- if and .Values.tls.builtin.serverNames (eq .Values.agents.service.type "NodePort") .Values.agents.service.nodePort }}
{{- $port = .Values.agents.service.nodePort }}
{{- end }}
{{- printf "https://%s:%v" (ternary (printf "[%s]" $name) $name (contains ":" $name)) $port }}
{{- end }}
{{- end }}

{{/* The first name by which agents dial the Gateway. */}}
{{- define "nabu-hub.routeHostname" -}}
{{- if not .Values.agents.tlsRoute.hostnames }}
{{- fail "agents.tlsRoute.hostnames must have the name by which agents dial the hub" }}
{{- end }}
{{- first .Values.agents.tlsRoute.hostnames }}
{{- end }}

{{- define "nabu-hub.claimName" -}}
{{- default (printf "%s-data" (include "nabu-hub.fullname" .)) .Values.persistence.existingClaim }}
{{- end }}

{{/* The ports of the proxies to forges, as a list in YAML: that of each address, or its scheme's. */}}
{{- define "nabu-hub.proxyPorts" -}}
{{- $ports := list }}
{{- range compact (list .Values.proxy.https .Values.proxy.http) }}
{{- $default := "80" }}
{{- if hasPrefix "https://" . }}
{{- $default = "443" }}
{{- else if hasPrefix "socks" . }}
{{- $default = "1080" }}
{{- end }}
{{- $ports = append $ports (regexFind "[0-9]+" (regexFind ":[0-9]+/?$" .) | default $default | int) }}
{{- end }}
{{- toYaml (uniq $ports) }}
{{- end }}
