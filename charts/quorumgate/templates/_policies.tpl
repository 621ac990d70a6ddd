{{/*
What an account of the gate may do to objects of others. The specs are shared by the gate's account and by that of its removal; the context is the username.
*/}}
{{- define "quorumgate.policy.statefulsets" -}}
failurePolicy: Fail
matchConstraints:
  resourceRules:
    - apiGroups: [apps]
      apiVersions: [v1]
      resources: [statefulsets, statefulsets/*]
      operations: [CREATE, UPDATE, DELETE]
matchConditions:
  - name: the-gate
    expression: request.userInfo.username == '{{ . }}'
variables:
  - name: written
    expression: "['annotations', 'generation', 'managedFields', 'resourceVersion']"
  - name: remembered
    expression: "'quorumgate.io/previous-update-strategy'"
  - name: before
    expression: "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
  - name: after
    expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
validations:
  - expression: request.operation == 'UPDATE' && (!has(request.subResource) || request.subResource == '')
    message: the gate's account updates StatefulSets; it neither creates nor deletes them, and scales none by /scale
  - expression: >-
      dyn(object.spec).all(field, field in ['updateStrategy', 'replicas'] ||
        (field in dyn(oldObject.spec) && dyn(object.spec)[field] == dyn(oldObject.spec)[field])) &&
      dyn(oldObject.spec).all(field, field in ['updateStrategy', 'replicas'] || field in dyn(object.spec))
    message: of a StatefulSet's spec, the gate's account may change updateStrategy and replicas, and nothing else
  - expression: >-
      object.spec.replicas == oldObject.spec.replicas || object.spec.replicas > 0 &&
      object.spec.replicas - oldObject.spec.replicas in [-1, 1] &&
      has(object.metadata.labels) && 'quorumgate.io/enroll' in object.metadata.labels
    message: the gate's account changes replicas by one, and only of a StatefulSet with the label quorumgate.io/enroll
  - expression: >-
      variables.after.all(key, key == variables.remembered ||
        (key in variables.before && variables.after[key] == variables.before[key])) &&
      variables.before.all(key, key == variables.remembered || key in variables.after)
    message: of a StatefulSet's annotations, the gate's account may change quorumgate.io/previous-update-strategy and nothing else
  - expression: >-
      dyn(object.metadata).all(field, field in variables.written ||
        (field in dyn(oldObject.metadata) && dyn(object.metadata)[field] == dyn(oldObject.metadata)[field])) &&
      dyn(oldObject.metadata).all(field, field in variables.written || field in dyn(object.metadata))
    message: the gate's account may change no label, owner or finalizer of a StatefulSet
{{- end }}

{{- define "quorumgate.policy.namespaces" -}}
failurePolicy: Fail
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [namespaces, namespaces/*]
      operations: [CREATE, UPDATE, DELETE]
matchConditions:
  - name: the-gate
    expression: request.userInfo.username == '{{ . }}'
variables:
  - name: written
    expression: "['labels', 'generation', 'managedFields', 'resourceVersion']"
  - name: before
    expression: "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"
  - name: after
    expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
validations:
  - expression: request.operation == 'UPDATE' && (!has(request.subResource) || request.subResource == '')
    message: the gate's account updates namespaces; it neither creates nor deletes them
  - expression: >-
      variables.after.all(key, key == 'quorumgate.io/gated' ||
        (key in variables.before && variables.after[key] == variables.before[key])) &&
      variables.before.all(key, key == 'quorumgate.io/gated' || key in variables.after)
    message: of a namespace's labels, the gate's account may change quorumgate.io/gated and nothing else
  - expression: >-
      !(object.metadata.name in ['kube-system', request.userInfo.username.split(':')[2]])
    message: neither kube-system nor the gate's own namespace is ever gated
  - expression: >-
      dyn(object.metadata).all(field, field in variables.written ||
        (field in dyn(oldObject.metadata) && dyn(object.metadata)[field] == dyn(oldObject.metadata)[field])) &&
      dyn(oldObject.metadata).all(field, field in variables.written || field in dyn(object.metadata)) &&
      dyn(object.spec) == dyn(oldObject.spec)
    message: the gate's account may change nothing of a namespace but a label
{{- end }}

{{- define "quorumgate.policy.budgets" -}}
failurePolicy: Fail
matchConstraints:
  resourceRules:
    - apiGroups: [quorumgate.io]
      apiVersions: ["*"]
      resources: [quorumdisruptionbudgets]
      operations: [CREATE, UPDATE, DELETE]
    - apiGroups: [policy]
      apiVersions: [v1]
      resources: [poddisruptionbudgets, poddisruptionbudgets/*]
      operations: [CREATE, UPDATE, DELETE]
matchConditions:
  - name: the-gate
    expression: request.userInfo.username == '{{ . }}'
variables:
  - name: objects
    expression: "[dyn(object), dyn(oldObject)].filter(object, object != null)"
validations:
  - expression: >-
      variables.objects.all(object, has(object.metadata.labels) &&
        'app.kubernetes.io/managed-by' in object.metadata.labels &&
        object.metadata.labels['app.kubernetes.io/managed-by'] == 'quorumgate')
    message: the gate's account may write budgets of its own making only
  - expression: >-
      request.resource.resource != 'poddisruptionbudgets' || request.name.startsWith('quorumgate-')
    message: the gate's account may write companion budgets only, quorumgate-NAME
  # A budget for all pods of a namespace, or one that permits nothing, would stop every drain.
  - expression: >-
      request.resource.resource != 'poddisruptionbudgets' || request.operation == 'DELETE' || (
        request.namespace != 'kube-system' &&
        has(dyn(object).metadata.ownerReferences) && dyn(object).metadata.ownerReferences.exists(owner,
          owner.kind == 'QuorumDisruptionBudget' && request.name == 'quorumgate-' + owner.name) &&
        has(dyn(object).spec.selector) && has(dyn(object).spec.selector.matchExpressions) &&
        dyn(object).spec.selector.matchExpressions.exists(term,
          term.key == 'statefulset.kubernetes.io/pod-name' && term.operator == 'Exists') &&
        has(dyn(object).spec.minAvailable) && !has(dyn(object).spec.maxUnavailable))
    message: a companion budget belongs to its budget, selects members, and says how many stay
  - expression: >-
      variables.objects.all(object, !has(object.metadata.annotations) ||
        !('quorumgate.io/override-until' in object.metadata.annotations)) || request.operation == 'DELETE'
    message: the gate's account overrides nothing
  - expression: >-
      request.resource.resource != 'quorumdisruptionbudgets' || request.operation != 'DELETE' ||
      !has(dyn(oldObject).status) || !has(dyn(oldObject).status.grants) || size(dyn(oldObject).status.grants) == 0
    message: the gate's account may delete no budget with open grants
{{- end }}

{{- define "quorumgate.policy.marks" -}}
failurePolicy: Fail
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods, pods/*]
      operations: [CREATE, UPDATE, DELETE, CONNECT]
matchConditions:
  - name: the-gate
    expression: request.userInfo.username == '{{ . }}'
variables:
  - name: written
    expression: "['annotations', 'generation', 'managedFields', 'resourceVersion']"
  - name: marks
    expression: "{'cluster-autoscaler.kubernetes.io/safe-to-evict': 'false', 'quorumgate.io/asked': 'true'}"
  - name: before
    expression: "dyn(oldObject) != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
  - name: after
    expression: "dyn(object) != null && has(object.metadata) && has(object.metadata.annotations) ? object.metadata.annotations : {}"
validations:
  - expression: request.operation == 'UPDATE' && (!has(request.subResource) || request.subResource == '')
    message: the account that removes the gate updates pods; it neither creates, deletes nor enters them
  - expression: >-
      request.operation != 'UPDATE' || (
      variables.after.all(key, key in variables.before && variables.after[key] == variables.before[key]) &&
      variables.before.all(key, key in variables.after || (key in variables.marks && variables.before[key] == variables.marks[key])))
    message: of a pod's annotations, the account that removes the gate may take off the gate's marks and nothing else
  - expression: >-
      request.operation != 'UPDATE' || (
      dyn(object.metadata).all(field, field in variables.written ||
        (field in dyn(oldObject.metadata) && dyn(object.metadata)[field] == dyn(oldObject.metadata)[field])) &&
      dyn(oldObject.metadata).all(field, field in variables.written || field in dyn(object.metadata)) &&
      dyn(object.spec) == dyn(oldObject.spec))
    message: the account that removes the gate may change nothing else of a pod
{{- end }}
