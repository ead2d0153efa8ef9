package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// Bounds, in bytes, of what is read as one object. YAML takes much more memory.
const (
	maxObject = 8 << 20
	maxYAML   = 2 << 20
	maxItems  = 5000 // objects of a list
	maxParts  = 100  // machines of a list that are shown
)

var (
	kinds = regexp.MustCompile(`(?m)^[ -]*kind: (?:Node|Event|CertificateSigningRequest)(?:List)?\s*$`)
	// Tables of kubectl and crictl. Source: kubernetes/pkg/printers/internalversion/printers.go,
	// kubernetes/staging/src/k8s.io/kubectl/pkg/cmd/events/event_printer.go, cri-tools/cmd/crictl/container.go.
	requestRow = regexp.MustCompile(`^((?:node-)?csr-)?\S+\s+(\d[\dydhms]*)\s+(?:(\S+/\S+)\s+)?(\S+)\s+(?:\S+\s+)?((?:Pending|Approved|Denied)[\w,]*)$`)
	eventRow   = regexp.MustCompile(`^(?:[a-z]\S*\s+)?(<unknown>|\d[\dydhms]*)(?: \(x\d+ over \S+\))?\s+(?:Normal|Warning)\s+(\S+)\s+(\w[\w.]*)/(\S+)\s`)
	containers = regexp.MustCompile(`\s(Running|Exited)\s+(kube-apiserver|kube-controller-manager|kube-scheduler|etcd)\s+\d+\s+[0-9a-f]{13}`)
	ages       = regexp.MustCompile(`(\d+)([ydhms])`)
)

// object is a Node, an Event or a CertificateSigningRequest, a list of them, what crictl info
// prints, or cloud-init's status.json or result.json.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct{ SignerName, Username string }
	Status   struct {
		Conditions []struct {
			Type, Reason, Message string
			Status                any // crictl's is no text
		}
		Certificate string
	}
	InvolvedObject        struct{ Kind, Name string }
	Reason, LastTimestamp string
	Items                 []object
	V1                    map[string]json.RawMessage
}

// objects are the parts of a text that is one object or a list, by machine; none where it is
// something else. Their lines are no log.
func objects(t *Text) (parts []*part) {
	var b strings.Builder
	for _, l := range t.Lines {
		if b.Len()+len(l.Text) > maxObject {
			return nil
		}
		b.WriteString(l.Text + "\n")
	}
	text := []byte(b.String())
	if b.Len() <= maxYAML && kinds.Match(text) && !aliased(text) {
		text, _ = yaml.YAMLToJSON(text)
	}
	var list object
	if err := json.Unmarshal(text, &list); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil
	}
	left := 0
	of := func(machine, form string) *part {
		i := slices.IndexFunc(parts, func(p *part) bool { return p.machine == machine })
		if i < 0 && len(parts) < maxParts {
			i, parts = len(parts), append(parts, &part{text: t, machine: machine, lines: t.Lines, object: true, form: form})
		} else if i < 0 {
			left++
			return &part{}
		}
		return parts[i]
	}
	at := 0
	line := func(words string) int { // of the next object that has them: objects are in the text's order
		for n := at; n < min(len(t.Lines), at+maxItems); n++ {
			if strings.Contains(t.Lines[n].Text, words) {
				at = n
				break
			}
		}
		return at
	}
	if n := len(list.Items) - maxItems; n > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("its last %d objects were not read: name those of interest to kubectl", n))
		list.Items = list.Items[:maxItems]
	}
	for _, o := range append(list.Items, list) {
		switch {
		case o.Kind == "CertificateSigningRequest":
			condition := ""
			for _, c := range o.Status.Conditions {
				condition += c.Type
			}
			if o.Status.Certificate != "" {
				condition += "Issued"
			}
			of("", "signing requests").request(line(o.Metadata.Name), o.Spec.SignerName, o.Spec.Username, condition)
		case o.Kind == "Event" && o.InvolvedObject.Kind == "Node":
			of(o.InvolvedObject.Name, "Events").event(line(o.Reason), o.Reason, o.LastTimestamp)
		case o.V1["errors"] != nil || o.V1["init"] != nil:
			of("", "cloud-init's status").readStatus(o.V1, line(`"errors"`))
		}
		for _, c := range o.Status.Conditions {
			status := strings.EqualFold(fmt.Sprint(c.Status), "true")
			switch {
			case o.Kind == "Node" && c.Type == "Ready":
				name := o.Metadata.Name
				if status && len(list.Items) > 1 {
					name = ""
				}
				if c.Message == "" {
					c.Message = "Ready"
				}
				of(name, "a Node").ready(line(c.Message), status, c.Reason+": "+c.Message)
			case o.Kind == "" && (c.Type == "RuntimeReady" || c.Type == "NetworkReady") && !status:
				of("", "crictl info").ready(line(c.Type), false, map[string]string{"RuntimeReady": "container runtime is down"}[c.Type]+c.Reason+": "+c.Message)
			case o.Kind == "" && c.Type == "RuntimeReady":
				of("", "crictl info")
			}
		}
	}
	if left > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d objects of other machines than the first %d were left out", left, maxParts))
	}
	if len(parts) > 1 { // Nodes that are Ready beside others
		parts = slices.DeleteFunc(parts, func(p *part) bool { return p.machine == "" && !p.failed })
	}
	return parts
}

// readStatus reads cloud-init's status.json or result.json.
func (p *part) readStatus(v1 map[string]json.RawMessage, line int) {
	p.cloudInit = &verdict.CloudInit{}
	var all []string
	if json.Unmarshal(v1["errors"], &all) == nil && len(all) > 0 {
		p.cloudInit.Stages = append(p.cloudInit.Stages, verdict.Stage{Errors: all})
	}
	for _, name := range [...]string{"init-local", "init", "modules-config", "modules-final"} {
		var s struct {
			Errors []string
			Start  *float64
		}
		if json.Unmarshal(v1[name], &s) == nil && s.Start != nil {
			p.cloudInit.Stages = append(p.cloudInit.Stages, verdict.Stage{Name: name, Begin: 1, End: 2, Errors: s.Errors})
		}
	}
	if p.failed = p.cloudInit.Failed(); p.failed {
		p.signs = append(p.signs, line)
	} else if v1["datasource"] != nil {
		p.good(line)
	}
}

// request takes a signing request: nodes come up without a serving certificate.
func (p *part) request(line int, signer, who, condition string) {
	sign := "CSRPending"
	switch {
	case signer != "kubernetes.io/kube-apiserver-client-kubelet" && (signer != "" || strings.HasPrefix(who, "system:") && !strings.HasPrefix(who, "system:bootstrap:")), // older clusters have users of their own for it
		strings.Contains(condition, "Issued"):
		return
	case strings.Contains(condition, "Denied"), strings.Contains(condition, "Failed"):
		sign = "CSRNotApproved"
	}
	if p.sign != "CSRNotApproved" {
		p.sign, p.failed, p.signs = sign, true, []int{line}
	}
}

// event takes an Event of the Node: of those that speak of its state the newest counts.
func (p *part) event(line int, reason, at string) {
	if ready := reason == "NodeReady"; (ready || reason == "NodeNotReady") && at >= p.newest {
		p.newest, p.sign, p.failed, p.signs = at, "", false, nil
		p.ready(line, ready, "")
	}
}

// age is how long ago something was, in seconds, as kubectl prints it.
func age(s string) (seconds int) {
	for _, m := range ages.FindAllStringSubmatch(s, -1) {
		n, _ := strconv.Atoi(m[1])
		seconds += n * map[string]int{"y": 365 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}[m[2]]
	}
	return seconds
}

// readTables reads kubectl get csr and get events, and crictl ps.
func (p *part) readTables() {
	exited, runs, all := map[string]int{}, map[string]bool{}, false
	for i, l := range p.lines {
		all = all || strings.HasPrefix(l.Text, "CONTAINER ") || strings.Contains(l.Text, " Running ") // not those that exited alone
		if m := requestRow.FindStringSubmatch(l.Text); m != nil && (m[1] != "" || strings.HasPrefix(m[4], "system:")) {
			if p.form = "kubectl get csr"; age(m[2]) >= 60 { // before it is on its way
				p.request(i, m[3], m[4], m[5])
			}
		} else if m := eventRow.FindStringSubmatch(l.Text); m != nil {
			p.form = "kubectl get events"
			p.event(i, m[2], fmt.Sprintf("%010d", max(0, 2e9-age(m[1]))))
		} else if m := containers.FindStringSubmatch(l.Text); m != nil {
			if p.form = "crictl ps"; m[1] == "Running" {
				runs[m[2]] = true
			} else {
				exited[m[2]] = i
			}
		}
	}
	for name, i := range exited {
		if all && !runs[name] {
			p.sign, p.failed, p.signs = "ControlPlaneNotHealthy", true, append(p.signs, i)
		}
	}
}
