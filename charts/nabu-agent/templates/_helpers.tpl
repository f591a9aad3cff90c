{{- define "nabu-agent.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters, so that a suffix still fits into a name of 63; and what a Service may be called: the name of a release may have dots
and begin with a digit, that of a Service may not. */}}
{{- define "nabu-agent.fullname" -}}
{{- $fullname := printf "%s-%s" .Release.Name (include "nabu-agent.name" .) }}
{{- if .Values.fullnameOverride }}
{{- $fullname = .Values.fullnameOverride }}
{{- else if contains (include "nabu-agent.name" .) .Release.Name }}
{{- $fullname = .Release.Name }}
{{- end }}
{{- if not (regexMatch "^[a-z]" $fullname) }}
{{- fail (printf "objects would be called %s, and the name of a Service begins with a letter: set fullnameOverride" $fullname) }}
{{- end }}
{{- $fullname | replace "." "-" | trunc 50 | trimAll "-" }}
{{- end }}

{{- define "nabu-agent.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nabu-agent.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of an object, each key once: the recommended ones, the common ones and its own, of which the last one counts, but never
instead of those that selectors and Helm go by. Takes the root context, or a list of it and a map. */}}
{{- define "nabu-agent.labels" -}}
{{- $root := . }}
{{- $own := dict }}
{{- if kindIs "slice" . }}
{{- $root = index . 0 }}
{{- $own = index . 1 }}
{{- end }}
{{- $fixed := dict "app.kubernetes.io/name" (include "nabu-agent.name" $root) "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $recommended := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/component" "agent" "app.kubernetes.io/part-of" "nabu"
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") }}
{{- toYaml (mergeOverwrite (dict) $recommended ($root.Values.commonLabels | default dict) $own $fixed) }}
{{- end }}

{{/* Labels of the Pod of `helm test`. It has another name than the program, so that no Service and no policy selects it. */}}
{{- define "nabu-agent.testLabels" -}}
{{- $labels := fromYaml (include "nabu-agent.labels" (list . (dict "app.kubernetes.io/component" "test"))) }}
{{- toYaml (set $labels "app.kubernetes.io/name" (printf "%s-test" (include "nabu-agent.name" .))) }}
{{- end }}

{{/* Annotations of an object: the common ones and its own. Takes a list of the root context and a map. */}}
{{- define "nabu-agent.annotations" -}}
{{- $root := index . 0 -}}
{{- with mergeOverwrite (dict) $root.Values.commonAnnotations (index . 1) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "nabu-agent.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "nabu-agent.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "nabu-agent.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "nabu-agent.identitySecretName" -}}
{{- if .Values.identity.secretName }}
{{- .Values.identity.secretName }}
{{- else if .Values.identity.certManager.enabled }}
{{- printf "%s-tls" (include "nabu-agent.fullname" .) }}
{{- else }}
{{- fail "nabu-agent needs its identity: with identity.mode=files, set identity.secretName to a Secret with ca.crt, tls.crt and tls.key (nabuctl pki makes these files), or identity.certManager.enabled=true" }}
{{- end }}
{{- end }}

{{- define "nabu-agent.joins" -}}
{{- if eq .Values.identity.mode "joinToken" }}
{{- if or .Values.identity.secretName .Values.identity.certManager.enabled .Values.identity.ca.secretName .Values.identity.ca.configMapName }}
{{- fail "identity.secretName, identity.ca and identity.certManager are for identity.mode=files, and with identity.mode=joinToken the agent gets its certificate from the hub: set identity.mode=files, or leave them out" }}
{{- end }}
{{- print "true" }}
{{- else if or .Values.joinToken .Values.identity.joinTokenSecret .Values.hub.caPin }}
{{- fail "joinToken, identity.joinTokenSecret and hub.caPin are for identity.mode=joinToken, and with identity.mode=files the agent joins nothing and trusts the authority in ca.crt: leave them out, or set identity.mode=joinToken" }}
{{- end }}
{{- end }}

{{/* Whether the authority of the hub comes from elsewhere than the agent's own certificate. */}}
{{- define "nabu-agent.ownCa" -}}
{{- if and .Values.identity.ca.secretName .Values.identity.ca.configMapName }}
{{- fail "identity.ca.secretName and identity.ca.configMapName exclude each other: give one of them" }}
{{- end }}
{{- if or .Values.identity.ca.secretName .Values.identity.ca.configMapName }}true{{ end }}
{{- end }}

{{/* The Secret that the agent keeps its identity in. */}}
{{- define "nabu-agent.ownSecretName" -}}
{{- printf "%s-identity" (include "nabu-agent.fullname" .) }}
{{- end }}

{{/* The Secret with the join token; empty if there is none. */}}
{{- define "nabu-agent.joinTokenSecretName" -}}
{{- if and .Values.joinToken .Values.identity.joinTokenSecret }}
{{- fail "joinToken and identity.joinTokenSecret exclude each other: give one of them" }}
{{- end }}
{{- if and (or .Values.joinToken .Values.identity.joinTokenSecret) (not .Values.hub.caPin) }}
{{- fail "a join token needs hub.caPin: it must not be sent to a hub that nobody has checked; nabuctl cluster add prints the pin" }}
{{- end }}
{{- if .Values.joinToken }}
{{- printf "%s-join-token" (include "nabu-agent.fullname" .) }}
{{- else }}
{{- .Values.identity.joinTokenSecret }}
{{- end }}
{{- end }}

{{- define "nabu-agent.clusterId" -}}
{{- required "clusterId is required: the id of this cluster, for example --set clusterId=prod-eu" .Values.clusterId }}
{{- end }}

{{- define "nabu-agent.hubUrl" -}}
{{- required "hub.url is required: the address of the hub, for example --set hub.url=https://nabu-hub.example.com:8443" .Values.hub.url }}
{{- end }}

{{/* The port of an address: what follows its last colon, if that is a number; else the given one. A host may end in digits, too.
Takes a list of the address and a port. */}}
{{- define "nabu-agent.portOf" -}}
{{- regexFind "[0-9]+" (regexFind ":[0-9]+/?$" (index . 0)) | default (index . 1) }}
{{- end }}

{{- define "nabu-agent.hubPort" -}}
{{- include "nabu-agent.portOf" (list (include "nabu-agent.hubUrl" .) "443") }}
{{- end }}

{{/* The port of proxy.url: 80 if it names none. Nothing without a proxy whose address is known here. */}}
{{- define "nabu-agent.proxyPort" -}}
{{- with .Values.proxy.url }}
{{- include "nabu-agent.portOf" (list . "80") }}
{{- end }}
{{- end }}

{{/* A name that no release of another namespace has, for what is not in the release's namespace. */}}
{{- define "nabu-agent.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "nabu-agent.fullname" .) }}
{{- end }}
