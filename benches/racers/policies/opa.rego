# What OPA answers in the race: it keeps pods whose names begin with etcd-.
package system

main := {
	"apiVersion": "admission.k8s.io/v1",
	"kind": "AdmissionReview",
	"response": response,
}

response := {"uid": input.request.uid, "allowed": true} if not kept

response := {
	"uid": input.request.uid,
	"allowed": false,
	"status": {"code": 429, "message": sprintf("%s is needed", [input.request.name])},
} if kept

kept if {
	takes
	startswith(input.request.name, "etcd-")
}

takes if input.request.operation == "DELETE"

takes if input.request.subResource == "eviction"
