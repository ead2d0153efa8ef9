package azsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A Report is what the agent on an instance tells the platform: of itself, and of
// the extensions that it runs. What it does not mention stays as it was told.
type Report struct {
	Agent      *AgentReport
	Extensions []ExtensionReport
}

// An AgentReport is the agent's word on itself.
type AgentReport struct {
	Version string // "" is the usual one
	Ready   bool
	Message string    // "" is the usual one
	Time    time.Time // zero: when it is told
}

// The states of an ExtensionReport, as handlers write them into their status
// files. Success and error are final.
const (
	StatusTransitioning = "transitioning"
	StatusWarning       = "warning"
	StatusSuccess       = "success"
	StatusError         = "error"
)

// An ExtensionReport is the content of a handler's status file in the file's own
// words (WALinuxAgent, exthandlers.py).
type ExtensionReport struct {
	Name      string // of the extension on the instance, or of its handler: "Publisher.Type"
	Operation string
	Status    string
	Code      int
	Message   string
	Time      time.Time // zero: when it is told
	Substatus []Substatus
}

// A Substatus is the state of a part of an extension's work.
type Substatus struct {
	Name    string
	Status  string
	Code    int
	Message string
}

// Report takes what the agent on an instance says; the instance view shows it from
// then on. While an extension is provisioned, "transitioning" holds its end up, up
// to the model's extensionsTimeBudget, and "error" fails it. An instance that is
// not there, one that does not run, or an extension that it does not have is an
// error, and so is a state that handlers do not know; then nothing is taken.
func (s *Server) Report(instanceID string, r Report) error {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findID(instanceID)
	if e == nil {
		return fmt.Errorf("report of %s: no such instance", instanceID)
	}
	if err := s.report(e, r); err != nil {
		return fmt.Errorf("report of %s: %w", instanceID, err)
	}
	return nil
}

func (s *Server) report(e *entry, r Report) error {
	x, isInstance := e.extra.(*instance)
	if !isInstance {
		return errors.New("not an instance")
	}
	if x.gone || x.power != powerRunning {
		return errors.New("it does not run")
	}
	exts := make([]*armcompute.VirtualMachineExtension, len(r.Extensions))
	for i, told := range r.Extensions {
		if exts[i] = x.handledBy(told.Name); exts[i] == nil {
			return fmt.Errorf("it has no extension or handler %q", told.Name)
		}
		if err := told.check(); err != nil {
			return err
		}
	}
	now := time.Now()
	if r.Agent != nil {
		a := *r.Agent
		if a.Time.IsZero() {
			a.Time = now
		}
		x.agent = &a
	}
	for i, told := range r.Extensions {
		if told.Time.IsZero() {
			told.Time = now
		}
		told.Substatus = slices.Clone(told.Substatus)
		if x.reports == nil {
			x.reports = map[string]ExtensionReport{}
		}
		x.reports[strings.ToLower(val(exts[i].Name))] = told
		exts[i].Properties.InstanceView = told.view(exts[i])
	}
	if x.told != nil { // somebody waits for it
		close(x.told)
		x.told = nil
	}
	return nil
}

func (r ExtensionReport) check() error {
	known := []string{StatusTransitioning, StatusWarning, StatusSuccess, StatusError}
	if !slices.Contains(known, r.Status) {
		return fmt.Errorf("extension %q has the status %q, not one of %v", r.Name, r.Status, known)
	}
	for _, sub := range r.Substatus {
		if !slices.Contains(known, sub.Status) {
			return fmt.Errorf("%q of extension %q has the status %q, not one of %v", sub.Name, r.Name, sub.Status, known)
		}
	}
	return nil
}

// view is a report in the words of an instance view: "ProvisioningState/failed/5"
// for a status, "ComponentStatus/StdOut/succeeded" for a substatus (documentation
// of the custom script extension). That substatuses carry codes of failure in the
// same way is inferred.
func (r ExtensionReport) view(ext *armcompute.VirtualMachineExtension) *armcompute.VirtualMachineExtensionInstanceView {
	one := func(prefix, state string, code int, message string) *armcompute.InstanceViewStatus {
		word, display, level := "succeeded", "Provisioning succeeded", armcompute.StatusLevelTypesInfo
		switch state {
		case StatusTransitioning:
			word, display = "transitioning", "Transitioning"
		case StatusWarning:
			level = armcompute.StatusLevelTypesWarning
		case StatusError:
			word, display, level = "failed", "Provisioning failed", armcompute.StatusLevelTypesError
		}
		if code != 0 {
			word += "/" + strconv.Itoa(code)
		}
		st := status(prefix+"/"+word, display, level, r.Time)
		if message != "" {
			st.Message = ptr(message)
		}
		return st
	}
	v := &armcompute.VirtualMachineExtensionInstanceView{
		Name: ext.Name, Type: ptr(handlerName(ext)), TypeHandlerVersion: ext.Properties.TypeHandlerVersion,
		Statuses: []*armcompute.InstanceViewStatus{one("ProvisioningState", r.Status, r.Code, r.Message)},
	}
	for _, sub := range r.Substatus {
		v.Substatuses = append(v.Substatuses, one("ComponentStatus/"+sub.Name, sub.Status, sub.Code, sub.Message))
	}
	return v
}

// handledBy finds an extension by its name, else by its handler's.
func (x *instance) handledBy(name string) *armcompute.VirtualMachineExtension {
	if ext := x.findExtension(name); ext != nil {
		return ext
	}
	for _, ext := range x.extensions {
		if strings.EqualFold(handlerName(ext), name) {
			return ext
		}
	}
	return nil
}

func handlerName(ext *armcompute.VirtualMachineExtension) string {
	return val(ext.Properties.Publisher) + "." + val(ext.Properties.Type)
}

// agentView is the agent's part of an instance view.
func (x *instance) agentView(now time.Time) *armcompute.VirtualMachineAgentInstanceView {
	const info, warning = armcompute.StatusLevelTypesInfo, armcompute.StatusLevelTypesWarning
	v := &armcompute.VirtualMachineAgentInstanceView{VMAgentVersion: ptr("2.11.1.12"), ExtensionHandlers: []*armcompute.VirtualMachineExtensionHandlerInstanceView{}}
	report := AgentReport{Ready: x.reported(now), Time: now}
	if x.agent != nil {
		report = *x.agent
		if report.Version != "" {
			v.VMAgentVersion = ptr(report.Version)
		}
	} else if !report.Ready {
		v.VMAgentVersion, report.Message = ptr("Unknown"), "VM status blob is found but not yet populated."
	}
	st := status("ProvisioningState/succeeded", "Ready", info, report.Time)
	st.Message = ptr("Guest Agent is running")
	if x.image.os() == armcompute.OperatingSystemTypesWindows {
		st.Message = ptr("GuestAgent is running and processing the extensions.")
	}
	if !report.Ready {
		st = status("ProvisioningState/Unavailable", "Not Ready", warning, report.Time)
		st.Message = ptr("VM Agent is unresponsive.")
	}
	if report.Message != "" {
		st.Message = ptr(report.Message)
	}
	v.Statuses = []*armcompute.InstanceViewStatus{st}
	if !x.provisioned {
		return v
	}
	seen := map[string]bool{}
	for _, ext := range x.extensions {
		name := handlerName(ext)
		if seen[strings.ToLower(name)] {
			continue
		}
		seen[strings.ToLower(name)] = true
		h := status("ProvisioningState/succeeded", "Ready", info, time.Time{})
		h.Message = ptr("Plugin enabled")
		if ext.Properties.InstanceView == nil { // the agent has not heard of it yet
			h = status("ProvisioningState/NotReady", "Not Ready", info, time.Time{})
			h.Message = ptr("Install in progress")
		}
		v.ExtensionHandlers = append(v.ExtensionHandlers, &armcompute.VirtualMachineExtensionHandlerInstanceView{
			Type: ptr(name), TypeHandlerVersion: ext.Properties.TypeHandlerVersion, Status: h,
		})
	}
	return v
}

// defaultBudget is how long all extensions may take where the model does not say.
const defaultBudget = 90 * time.Minute

// outcome waits until an extension's report is final, as long as the budget
// allows. Without a report it succeeded.
func (s *Server) outcome(x *instance, ext *armcompute.VirtualMachineExtension) (ExtensionReport, error) {
	budget := defaultBudget
	s.locked(func() {
		if p := x.profile.ExtensionProfile; p != nil {
			if d := isoSeconds(val(p.ExtensionsTimeBudget)); d > 0 {
				budget = d
			}
		}
	})
	late := time.NewTimer(s.scaled(budget))
	defer late.Stop()
	for {
		var r ExtensionReport
		var isTold bool
		var next chan struct{}
		s.locked(func() {
			r, isTold = x.reports[strings.ToLower(val(ext.Name))]
			if isTold && r.Status == StatusTransitioning {
				if x.told == nil {
					x.told = make(chan struct{})
				}
				next = x.told
			}
		})
		if next == nil {
			return r, nil
		}
		select {
		case <-next:
		case <-x.alive.Done():
			return r, x.alive.Err()
		case <-late.C:
			return r, refuse(http.StatusConflict, "VMExtensionProvisioningTimeout",
				"Provisioning of VM extension %s has timed out. Extension provisioning has taken too long to complete. The extension last reported \"%s\".", val(ext.Name), r.Message)
		}
	}
}

// maxStatusFile is more than the agent reads of a status file.
const maxStatusFile = 128 << 10

// ParseStatusFile reads a handler's status file, of which only the first element
// counts, as the agent does. The report has no name: which extension it is of is
// known by the folder that the file lies in.
func ParseStatusFile(data []byte) (ExtensionReport, error) {
	if len(data) > maxStatusFile {
		return ExtensionReport{}, fmt.Errorf("status file of %d bytes, of which the agent takes %d", len(data), maxStatusFile)
	}
	type text struct {
		Message string `json:"message"`
	}
	var file []struct {
		TimestampUTC string `json:"timestampUTC"`
		Status       struct {
			Operation        string      `json:"operation"`
			Status           string      `json:"status"`
			Code             json.Number `json:"code"`
			FormattedMessage text        `json:"formattedMessage"`
			Substatus        []struct {
				Name             string      `json:"name"`
				Status           string      `json:"status"`
				Code             json.Number `json:"code"`
				FormattedMessage text        `json:"formattedMessage"`
			} `json:"substatus"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return ExtensionReport{}, fmt.Errorf("status file: %w", err)
	}
	if len(file) == 0 {
		return ExtensionReport{}, errors.New("status file without a status")
	}
	number := func(n json.Number) int {
		i, err := strconv.Atoi(n.String())
		if err != nil { // absent: 0
			return 0
		}
		return i
	}
	f := file[0]
	r := ExtensionReport{Operation: f.Status.Operation, Status: strings.ToLower(f.Status.Status), Code: number(f.Status.Code), Message: f.Status.FormattedMessage.Message}
	if t, err := time.Parse(time.RFC3339, f.TimestampUTC); err == nil {
		r.Time = t
	}
	for _, sub := range f.Status.Substatus {
		r.Substatus = append(r.Substatus, Substatus{Name: sub.Name, Status: strings.ToLower(sub.Status), Code: number(sub.Code), Message: sub.FormattedMessage.Message})
	}
	if err := r.check(); err != nil {
		return ExtensionReport{}, fmt.Errorf("status file: %w", err)
	}
	return r, nil
}
