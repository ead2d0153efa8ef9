package azsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An armError is a refusal as Azure Resource Manager words it, with the HTTP
// status that carries it. It is the only error type that handlers return; any
// other error becomes a 500.
type armError struct {
	status     int
	code       string
	message    string
	target     string
	details    []*armError
	info       []any         // additionalInfo
	retryAfter time.Duration // 0: no header
}

// refuse makes an armError with a formatted message.
func refuse(status int, code, format string, args ...any) *armError {
	return &armError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// badRequest is the 400 that most checks of a body end in.
func badRequest(code, format string, args ...any) *armError {
	return refuse(http.StatusBadRequest, code, format, args...)
}

// badParameter is Compute's 400 that names the offending member.
func badParameter(target, format string, args ...any) *armError {
	e := refuse(http.StatusBadRequest, "InvalidParameter", format, args...)
	e.target = target
	return e
}

func (e *armError) Error() string { return e.code + ": " + e.message }

func (e *armError) withTarget(target string) *armError {
	e.target = target
	return e
}

// MarshalJSON returns the inner object: {"code", "message", "target", "details", "additionalInfo"}.
func (e *armError) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Code    string      `json:"code"`
		Message string      `json:"message"`
		Target  string      `json:"target,omitempty"`
		Details []*armError `json:"details,omitempty"`
		Info    []any       `json:"additionalInfo,omitempty"`
	}{e.code, e.message, e.target, e.details, e.info})
}

// asARM turns any error into one that can be put on the wire.
func asARM(err error) *armError {
	var e *armError
	if errors.As(err, &e) {
		return e
	}
	return refuse(http.StatusInternalServerError, "InternalExecutionError",
		"An internal execution error occurred. Please retry later. (%v)", err)
}

func notFound(id resourceID) *armError {
	if !id.hasGroup() {
		return refuse(http.StatusNotFound, "ResourceNotFound", "The Resource '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", id.short())
	}
	return refuse(http.StatusNotFound, "ResourceNotFound",
		"The Resource '%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix", id.short(), id.group)
}

func parentNotFound(id resourceID) *armError {
	return refuse(http.StatusNotFound, "ParentResourceNotFound",
		"Failed to perform 'write' on resource(s) of type '%s', because the parent resource '%s' could not be found.",
		strings.ToLower(id.typeName()), id.parent().String())
}

func groupNotFound(group string) *armError {
	return refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", group)
}

// conflict is Compute's 409.
func conflict(format string, args ...any) *armError {
	return refuse(http.StatusConflict, "OperationNotAllowed", format, args...)
}

// preempted is how an operation ends that a newer one overtakes.
func preempted() *armError {
	return refuse(http.StatusConflict, "OperationPreempted", "Operation execution has been preempted by a more recent operation.")
}
