{{- define "quorumgate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/*
The name of every object. 40 characters leave room for what is added behind it.
*/}}
{{- define "quorumgate.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = ternary .Release.Name (printf "%s-%s" .Release.Name (include "quorumgate.name" .)) (contains (include "quorumgate.name" .) .Release.Name) -}}
{{- end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "quorumgate.serviceAccountName" -}}
{{- include "quorumgate.fullname" . -}}
{{- end }}

{{/*
The username of the gate, by which the policies know it.
*/}}
{{- define "quorumgate.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "quorumgate.serviceAccountName" . }}
{{- end }}

{{/*
Labels of the replicas. A cluster has one gate, so they name no release.
*/}}
{{- define "quorumgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "quorumgate.name" . }}
{{- end }}

{{- define "quorumgate.labels" -}}
{{ include "quorumgate.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
Labels of the pods of hooks. They must not be those of the replicas, which Service, Deployment and PodDisruptionBudget select.
*/}}
{{- define "quorumgate.uninstallLabels" -}}
app.kubernetes.io/name: {{ include "quorumgate.name" . }}-uninstall
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quorumgate.testLabels" -}}
app.kubernetes.io/name: {{ include "quorumgate.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quorumgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "quorumgate.imagePullSecrets" -}}
{{- with (concat (.Values.global.imagePullSecrets | default list) .Values.imagePullSecrets) -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{- define "quorumgate.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "quorumgate.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/*
The container of a hook: one subcommand of the program. The context is a dict with the root and the arguments.
*/}}
{{- define "quorumgate.hookContainer" -}}
- name: quorumgate
  image: {{ include "quorumgate.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
    {{- toYaml .args | nindent 4 }}
  resources:
    requests:
      cpu: 10m
      memory: 32Mi
    limits:
      memory: 128Mi
  securityContext:
    {{- include "quorumgate.containerSecurityContext" .root | nindent 4 }}
{{- end }}

{{- define "quorumgate.certificateSecret" -}}
{{- .Values.certificates.secretName | default (printf "%s-tls" (include "quorumgate.fullname" .)) -}}
{{- end }}

{{/*
Whether the gate makes its own certificates: not empty if so.
*/}}
{{- define "quorumgate.ownCertificates" -}}
{{- if not (or .Values.certificates.certManager.enabled .Values.certificates.caBundle) -}}
true
{{- end -}}
{{- end }}

{{/*
Of a certificate that was made before. Otherwise the gate or cert-manager writes it, and the chart does not say what it is.
*/}}
{{- define "quorumgate.caBundle" -}}
{{- if and .Values.certificates.caBundle (not .Values.certificates.certManager.enabled) -}}
caBundle: {{ .Values.certificates.caBundle | b64enc }}
{{- end -}}
{{- end }}

{{/*
The switches of all features, or nothing.
*/}}
{{- define "quorumgate.featureGates" -}}
{{- $gates := deepCopy .Values.featureGates -}}
{{- if .Values.etcdMembers.enabled -}}
{{- $_ := set $gates "EtcdMembers" true -}}
{{- end -}}
{{- $switches := list -}}
{{- range $name, $on := $gates -}}
{{- $switches = append $switches (printf "%s=%t" $name $on) -}}
{{- end -}}
{{- join "," $switches -}}
{{- end }}

{{/*
What would only show later, said at once.
*/}}
{{- define "quorumgate.checks" -}}
{{- if and .Values.featureGates.EtcdMembers (not .Values.etcdMembers.enabled) -}}
{{- fail "the feature EtcdMembers needs a definition and rights: set etcdMembers.enabled=true instead of featureGates.EtcdMembers" -}}
{{- end -}}
{{- if and .Values.certificates.secretName (include "quorumgate.ownCertificates" .) -}}
{{- fail "the API servers have to be told whose certificate the Secret of certificates.secretName holds: give the authority's certificate by --set-file certificates.caBundle=ca.crt (certs/README.md), or leave secretName out, and the gate makes its own" -}}
{{- end -}}
{{- /* A cluster answers look-ups; `helm template` and client-side dry runs do not. */ -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- if and .Values.certificates.certManager.enabled (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")) -}}
{{- fail "cert-manager is not installed: install it (https://cert-manager.io), or set certificates.certManager.enabled=false, and the gate makes its own certificates" -}}
{{- end -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" "").items -}}
{{- $theirs := . -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- $release := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if not (and (eq $release $.Release.Name) (eq $namespace $.Release.Namespace)) -}}
{{- range .webhooks -}}
{{- if eq .name "pods.quorumgate.io" -}}
{{- $by := ternary (printf "the release %s in the namespace %s" $release $namespace) "other means than helm" (ne $release "") -}}
{{- fail (printf "quorumgate is installed already, by %s (ValidatingWebhookConfiguration %s): a cluster has one gate, because two would wait for each other's permissions. Upgrade that one, or uninstall it first" $by $theirs.metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
