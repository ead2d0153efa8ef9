package verdict

import "strings"

// fault is what went wrong with a request, by the program that made it.
type fault int

const (
	noFault fault = iota
	proxyFault
	notYetValid
	expired
	untrusted
	wrongName
	noSuchHost
	resolverFault
	refused
	unreachable
	unauthorized
	forbidden
	unavailable
	rateLimited
	numberOfFaults
)

func hasAny(s string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// faultOf reads a line in lower case. A line that only reports a timeout is no fault of the
// network unless it names the request.
func faultOf(s string) fault {
	request := hasAny(s, `"https://`, `"http://`, `\"https://`, `\"http://`, "dial tcp", "read tcp", "https://", "http://", kubectlUnable)
	switch {
	case hasAny(s, "proxyconnect tcp", "proxy authentication required", "received http code 407 from proxy", "proxy connect aborted", "from proxy after connect", `": forbidden`, `\": forbidden`),
		request && hasAny(s, "get https://", "head https://", "post https://") && strings.HasSuffix(s, ": forbidden"): // to go 1.13
		return proxyFault
	case strings.Contains(s, "x509:"):
		switch {
		case hasAny(s, "not yet valid: current time", "or is not yet valid") && strings.Contains(s, " is before "):
			return notYetValid
		case strings.Contains(s, "has expired") && (strings.Contains(s, " is after ") || !strings.Contains(s, "or is not yet valid")):
			return expired // without times it is not known which of the two it is
		case hasAny(s, "unknown authority", "not trusted"):
			return untrusted
		case hasAny(s, "certificate is valid for", "doesn't contain any ip sans", "not valid for any names", "relies on legacy common name field"):
			return wrongName
		}
		return noFault
	case strings.Contains(s, "no such host"), strings.Contains(s, "lookup ") && hasAny(s, ": name or service not known", ": name does not resolve"): // by libc
		return noSuchHost
	case hasAny(s, "temporary failure in name resolution", "temporary failure resolving", "server misbehaving"):
		return resolverFault
	case strings.Contains(s, "lookup ") && hasAny(s, "i/o timeout", "connection refused", "read udp", "no answer from dns", ": try again", ":53: "):
		return resolverFault
	case hasAny(s, "connection refused", "actively refused", kubectlRefused):
		return refused
	case hasAny(s, "no route to host", "network is unreachable", "attempted to an unreachable network"):
		return unreachable
	case request && hasAny(s, "i/o timeout", "client.timeout", "context deadline exceeded", "tls handshake timeout", "reset by peer",
		"connection timed out", "operation timed out", ": eof", "unexpected eof", "connectex: a connection attempt failed"):
		return unreachable
	case hasAny(s, "toomanyrequests", "429 too many requests", "too many requests"):
		return rateLimited
	case hasAny(s, "unauthorized", "must be logged in to the server", "the server has asked for the client"):
		return unauthorized
	case hasAny(s, "is forbidden:", "403 forbidden", "is not allowed to ", " at the cluster scope.: ", " at the cluster scope. ("):
		return forbidden
	case hasAny(s, "currently unable to handle the request", "etcdserver: ", "503 service unavailable", "502 bad gateway", "504 gateway", "internal server error", "apiserver not ready", "an error on the server (", "was unable to return a response in the time allotted"):
		return unavailable
	}
	return noFault
}

// kubectl's messages for a server that was not reached. Source: kubernetes
// staging/src/k8s.io/kubectl/pkg/cmd/util/helpers.go, StandardErrorMessage.
const (
	kubectlUnable  = "unable to connect to the server: "
	kubectlRefused = "was refused - did you specify the right host or port"
)

// kubectls reports whether a line in lower case is of a request of kubectl's to an API
// server elsewhere: without a kubeconfig it asks this host.
func kubectls(s string) bool {
	return hasAny(s, kubectlUnable, kubectlRefused, "must be logged in to the server", "error from server (") &&
		!hasAny(s, "server localhost:", "server 127.0.0.1:", "server [::1]:", "dial tcp 127.0.0.1:", "dial tcp [::1]:")
}

// apiRequest reports whether a line in lower case is of a request to the API server (or,
// for k3s and RKE2, their supervisor).
func apiRequest(s string, k kind) bool {
	if pull(s) || hasAny(s, "169.254.169.254", "127.0.0.1:10248", "localhost:10248", "dial unix", "round_trippers.go") {
		return false
	}
	if hasAny(s, "error execution phase", "cluster-info configmap", "kubeadm-certs", "with api server", "apiserver", "api server", "/api/v1", "/apis/", ":6443/", ":6443:",
		"certificatesigningrequest", "certificate signing request", "ensure lease exists", "update lease", "updating node status", "the server has asked for the client", "reflector.go", "k8s.io/client-go") || kubectls(s) {
		return true
	}
	return k&k3s != 0 && hasAny(s, "connection to cluster at", "/cacerts", ":6444", ":9345", "agent config", "/v1-k3s/", "/v1-rke2/", "server is not ready")
}

// faults are the reasons of a fault: of a request to the API server, and of an image pull;
// "" where it has none.
var faults = [numberOfFaults]struct{ api, pull string }{
	proxyFault:    {"ProxyFailed", "ProxyFailed"},
	notYetValid:   {"ClockWrong", "ClockWrong"},
	expired:       {"APIServerCertificateExpired", "RegistryCertificateUntrusted"},
	untrusted:     {"APIServerCertificateUntrusted", "RegistryCertificateUntrusted"},
	wrongName:     {"APIServerCertificateNameMismatch", "RegistryCertificateUntrusted"},
	noSuchHost:    {"APIServerNameUnknown", "RegistryNameUnknown"},
	resolverFault: {"DNSFailed", "DNSFailed"},
	refused:       {"APIServerRefused", "RegistryUnreachable"},
	unreachable:   {"APIServerUnreachable", "RegistryUnreachable"},
	unauthorized:  {"APIServerUnauthorized", "ImagePullUnauthorized"},
	forbidden:     {"APIServerForbidden", "ImagePullUnauthorized"},
	unavailable:   {"APIServerUnavailable", ""},
	rateLimited:   {"", "ImagePullRateLimited"},
}

// ofAPIServer is a failed request's reason.
func (f fault) ofAPIServer(s string, k kind) string {
	switch {
	case k&k3s == 0:
	case f == refused && hasAny(s, "127.0.0.1:6444", "[::1]:6444"):
		return "APIServerUnreachable" // the agent's own load balancer refuses for want of a server
	case f == unavailable && strings.Contains(s, "/readyz"):
		return "" // a starting server answers so until it is up
	case f == unauthorized:
		return "K3sTokenRejected"
	}
	return faults[f].api
}

// pull reports whether a line in lower case is of a failed image pull.
func pull(s string) bool {
	if !hasAny(s, "pull", "resolve reference", "/v2/") || !hasAny(s, "fail", "error", "errimagepull", "unable") {
		return false
	}
	return hasAny(s, "failed to pull", "pulling image", "pullimage", "errimagepull", "resolve reference", "[error imagepull]", "pull image", "pull and unpack", "failed to resolve", "sandbox image", "/v2/")
}

func pullReason(s string) string {
	if reason := faults[faultOf(s)].pull; reason != "" {
		return reason
	}
	switch {
	case hasAny(s, "pull access denied", "insufficient_scope", "authorization failed", "authentication required"):
		return "ImagePullUnauthorized"
	case hasAny(s, "manifest unknown", "name unknown", ": not found", "not found: manifest"):
		return "ImageNotFound"
	case hasAny(s, "no space left on device"):
		return "DiskFull"
	}
	return "ImagePullFailed"
}

// nodeImage reports whether an image is one that a node needs to become ready.
func nodeImage(s string) bool {
	return hasAny(s, "sandbox image", "/pause", "calico", "cilium", "azure-cni", "azure-cns", "azure-npm", "flannel", "kube-proxy", "antrea", "canal", "weave", "cloud-node-manager", "rke2-runtime")
}

// download is the reason in curl's and wget's messages, "" where they have none, or only of
// this host, which scripts ask until it answers.
func download(s string) string {
	if hasAny(s, "localhost", "127.0.0.1", "[::1]", ":6443", "healthz", "readyz") {
		return ""
	}
	switch {
	case hasAny(s, "169.254.169.254") && hasAny(s, "curl: (7)", "curl: (28)", "timed out", "failed to connect", "no route to host", "connection refused"):
		return "IMDSUnreachable"
	case hasAny(s, "168.63.129.16") && !hasAny(s, ":53") && hasAny(s, "curl: (7)", "curl: (28)", "timed out", "failed to connect", "no route to host", "connection refused"):
		return "WireServerUnreachable"
	case hasAny(s, "curl: (5)", "curl: (97)") || strings.Contains(s, "curl: (56)") && hasAny(s, "proxy", "connect tunnel failed"):
		return "ProxyFailed"
	case hasAny(s, "curl: (6)", "wget: unable to resolve host address"):
		return "DownloadNameUnresolved"
	case hasAny(s, "curl: (7)", "curl: (28)", "curl: (35)", "curl: (52)", "curl: (56)"):
		return "DownloadUnreachable"
	case strings.Contains(s, "connecting to ") && hasAny(s, "... failed: connection", "... failed: no route", "... failed: network"): // wget
		return "DownloadUnreachable"
	case strings.Contains(s, "unable to access 'http") && hasAny(s, "failed to connect to", "connection timed out", "couldn't connect to server"): // git
		return "DownloadUnreachable"
	case strings.Contains(s, "curl: (22)") && strings.Contains(s, " error: 4"):
		return "DownloadRefused"
	case strings.Contains(s, "error 403: ") || strings.Contains(s, "error 404: not found"):
		return "DownloadRefused"
	case hasAny(s, "[error]  download failed", "[error]  failed to download", "error: download failed"):
		return "DownloadFailed"
	}
	return ""
}
