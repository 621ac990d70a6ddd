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

{{- define "quorumgate.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{- define "quorumgate.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "quorumgate.fullname" .) -}}
{{- end }}

{{/*
The username of the gate, by which the policies know it.
*/}}
{{- define "quorumgate.username" -}}
system:serviceaccount:{{ include "quorumgate.namespace" . }}:{{ include "quorumgate.serviceAccountName" . }}
{{- end }}

{{/*
Labels by which the replicas are selected.
*/}}
{{- define "quorumgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "quorumgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "quorumgate.labels" -}}
{{ include "quorumgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
Labels and annotations of an object: the chart's own, those in the dict that is the context, and the common ones. Of two values for one key the first counts.
*/}}
{{- define "quorumgate.metadata" -}}
{{- $own := include "quorumgate.labels" .root | fromYaml -}}
{{- include "quorumgate.podMetadata" (dict "root" .root "labels" (merge $own (.labels | default dict)) "annotations" .annotations) -}}
{{- end }}

{{/*
The same without the labels of the chart's objects: for pods, which have labels of their own.
*/}}
{{- define "quorumgate.podMetadata" -}}
labels:
  {{- merge (deepCopy .labels) .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "quorumgate.webhookAnnotations" -}}
{{- $own := dict -}}
{{- if .Values.certificates.certManager.enabled -}}
{{- $_ := set $own "cert-manager.io/inject-ca-from" (printf "%s/%s" (include "quorumgate.namespace" .) (include "quorumgate.certificateSecret" .)) -}}
{{- end -}}
{{- merge $own .Values.webhooks.annotations | toYaml -}}
{{- end }}

{{/*
Labels of the pods of hooks. They must not be those of the replicas, which Service, Deployment and PodDisruptionBudget select.
*/}}
{{- define "quorumgate.uninstallLabels" -}}
app.kubernetes.io/name: {{ include "quorumgate.name" . }}-uninstall
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "quorumgate.testLabels" -}}
app.kubernetes.io/name: {{ include "quorumgate.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/*
A registry of one's own holds the image under the same name: `global.imageRegistry`, or `image.registry`.
*/}}
{{- define "quorumgate.image" -}}
{{- with .Values.global.imageRegistry | default .Values.image.registry }}{{ . }}/{{ end -}}
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
    {{- toYaml .root.Values.hooks.resources | nindent 4 }}
  securityContext:
    {{- toYaml .root.Values.containerSecurityContext | nindent 4 }}
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
The path of a webhook. Where the gate makes its own certificates, it writes the path, which ends in a word of its certificate, and the chart does not say what it is.
*/}}
{{- define "quorumgate.path" -}}
{{- if not (include "quorumgate.ownCertificates" (first .)) -}}
path: {{ last . }}, {{/* a space */}}
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
Not empty where helm talks to a cluster. It does when it installs or upgrades a release, and renders the hooks that the release keeps. Where it only prints manifests, hooks would be
ordinary objects for whoever applies them: a Job that removes the gate.
*/}}
{{- define "quorumgate.hooks" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
true
{{- end -}}
{{- end }}

{{/*
What would only show later, said at once.
*/}}
{{- define "quorumgate.checks" -}}
{{- if not .Values.enabled -}}
{{- fail "enabled=false is for charts that depend on this one, with `condition: quorumgate.enabled`; to remove the gate, run helm uninstall" -}}
{{- end -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create=false needs serviceAccount.name: the policies hold that account to what the gate may do, and no other workload may use it" -}}
{{- end -}}
{{- if and (not .Values.rbac.create) (or .Values.uninstall.enabled .Values.tests.enabled) -}}
{{- fail "rbac.create=false leaves the hooks without rights: set uninstall.enabled=false and tests.enabled=false too, and run `quorumgate uninstall` before the removal" -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.minAvailable .Values.podDisruptionBudget.maxUnavailable -}}
{{- fail "a PodDisruptionBudget has one of podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable: set the other to null" -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (kindIs "invalid" .Values.podDisruptionBudget.minAvailable) (kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable) -}}
{{- fail "a PodDisruptionBudget without podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable allows no eviction: set one of them, or podDisruptionBudget.enabled=false" -}}
{{- end -}}
{{- if and .Values.featureGates.EtcdMembers (not .Values.etcdMembers.enabled) -}}
{{- fail "the feature EtcdMembers needs a definition and rights: set etcdMembers.enabled=true instead of featureGates.EtcdMembers" -}}
{{- end -}}
{{- if and .Values.certificates.secretName (include "quorumgate.ownCertificates" .) -}}
{{- fail "the API servers have to be told whose certificate the Secret of certificates.secretName holds: give the authority's certificate by --set-file certificates.caBundle=ca.crt (docs/install.md#certificates), or leave secretName out, and the gate makes its own" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.apiServers) -}}
{{- fail "networkPolicy.enabled needs networkPolicy.apiServers: without the addresses that API servers call from, either everybody may call or nobody, and then every gated request fails (docs/security.md says which addresses those are)" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.hostNetwork -}}
{{- fail "a NetworkPolicy does not apply to pods in the network of their nodes: leave networkPolicy.enabled or hostNetwork out" -}}
{{- end -}}
{{- if and (eq .Values.rbac.secrets "Namespaces") (not .Values.namespaces) -}}
{{- fail "rbac.secrets=Namespaces needs namespaces: those whose Secrets the gate may read" -}}
{{- end -}}
{{- if eq (int .Values.ports.webhooks) (int .Values.ports.metrics) -}}
{{- fail "ports.webhooks and ports.metrics are the same" -}}
{{- end -}}
{{- if include "quorumgate.hooks" . -}}
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
{{- fail (printf "quorumgate is installed already, by %s (ValidatingWebhookConfiguration %s): a cluster has one gate, because two would wait for each other's permissions. Upgrade that one, or uninstall it first. If its release is gone: kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration %s" $by $theirs.metadata.name $theirs.metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
