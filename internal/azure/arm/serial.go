package arm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// linkMinutes is how long a link to a serial log holds: long enough to read it.
const linkMinutes = 10

// SerialLog reads the end of an instance's serial log: a request to Resource
// Manager for a link, and one or two to the storage that it leads to, without our
// token and without following it elsewhere.
func (c *Cloud) SerialLog(ctx context.Context, instance fleet.ResourceID) ([]byte, error) {
	const op = "read serial log"
	link, err := c.serialLink(ctx, instance)
	if err != nil {
		return nil, failed(ctx, op, instance, noConsole(failed(ctx, op, instance, err)))
	}
	if link == "" {
		return nil, failed(ctx, op, instance, &fleet.Error{Kind: fleet.KindNotFound, Err: errors.New("no serial log is named by Azure")})
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		// The link is a secret: it is not told.
		return nil, failed(ctx, op, instance, &fleet.Error{Kind: fleet.KindInvalid, Err: errors.New("what Azure gave as link to the serial log is no https URL")})
	}
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	data, err := c.tail(within, u, azure.MaxSerialLog)
	return data, failed(ctx, op, instance, err)
}

func (c *Cloud) serialLink(ctx context.Context, instance fleet.ResourceID) (string, error) {
	if p, err := c.at(instance, typeInstance); err == nil {
		r, err := p.NewVirtualMachineScaleSetVMsClient().RetrieveBootDiagnosticsData(ctx, p.group, p.names[0], p.names[1],
			&armcompute.VirtualMachineScaleSetVMsClientRetrieveBootDiagnosticsDataOptions{SasURIExpirationTimeInMinutes: ptr(int32(linkMinutes))})
		return value(r.SerialConsoleLogBlobURI), err
	}
	p, err := c.at(instance, typeMachine)
	if err != nil {
		return "", err
	}
	r, err := p.NewVirtualMachinesClient().RetrieveBootDiagnosticsData(ctx, p.group, p.names[0],
		&armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataOptions{SasURIExpirationTimeInMinutes: ptr(int32(linkMinutes))})
	return value(r.SerialConsoleLogBlobURI), err
}

// noConsole tells the refusal of a log that is not kept from a conflict that
// passes: both are 409 OperationNotAllowed.
func noConsole(err error) error {
	var (
		e *fleet.Error
		r *refusal
	)
	if errors.As(err, &e) && errors.As(e.Err, &r) && r.status >= 400 && r.status < 500 && r.status != http.StatusForbidden &&
		r.status != http.StatusNotFound && strings.Contains(strings.ToLower(r.message), "boot diagnostics") {
		off := *e
		off.Kind = fleet.KindUnsupported
		off.Remedy = "enable boot diagnostics with managed storage in the scale set's model; instances that exist keep what they were made with until they are updated"
		return &off
	}
	return err
}

// tail reads the last bytes of a blob, at most that many.
func (c *Cloud) tail(ctx context.Context, u *url.URL, most int64) ([]byte, error) {
	whole, err := c.blob(ctx, u, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = whole.Body.Close() }() // what was wanted of it has been read
	size := whole.ContentLength
	if size <= most { // or unknown
		return c.readTail(whole.Body, most)
	}
	part, err := c.blob(ctx, u, size-most)
	if err != nil {
		return nil, err
	}
	defer func() { _ = part.Body.Close() }() // the same
	return c.readTail(part.Body, most)
}

// readTail reads to the end, if that comes, and keeps the last bytes, at most that
// many.
func (c *Cloud) readTail(body io.ReadCloser, most int64) ([]byte, error) {
	r := &boundedBody{ReadCloser: body, left: c.maxBody, max: c.maxBody}
	kept := make([]byte, 0, 64<<10)
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		kept = append(kept, buf[:n]...)
		if int64(len(kept)) > 2*most {
			kept = append(kept[:0], kept[int64(len(kept))-most:]...)
		}
		if errors.Is(err, io.EOF) {
			return kept[max(0, int64(len(kept))-most):], nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the serial log: %w", err)
		}
	}
}

// blob asks a storage service for a blob from a place on. Its answer is one of
// success.
func (c *Cloud) blob(ctx context.Context, u *url.URL, from int64) (*http.Response, error) {
	// Nothing of the pipeline to Resource Manager is used: it would add our token.
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("what Azure gave as link to the serial log cannot be asked")
	}
	r.Header.Set("User-Agent", c.agent)
	if from > 0 {
		r.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	resp, err := unfollowed(c.transport).Do(r)
	if err != nil {
		var with *url.Error
		if errors.As(err, &with) { // it quotes the link
			err = with.Err
		}
		return nil, fmt.Errorf("ask %s for the serial log: %w", u.Host, err)
	}
	answered := resp.Request == nil || resp.Request.URL == nil || resp.Request.URL.String() == u.String()
	if answered && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent) {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // only its status counts
	e := &fleet.Error{Err: &refusal{status: resp.StatusCode, code: short(resp.Header.Get("X-Ms-Error-Code")), message: "asked " + u.Host + " for the serial log"}}
	e.RetryAfter, _ = retryAfter(resp.Header)
	switch s := resp.StatusCode; {
	case !answered || s >= 300 && s < 400:
		e.Kind, e.Err = fleet.KindInvalid, fmt.Errorf("%s led elsewhere when asked for the serial log, which is not followed", u.Host)
	case s == http.StatusNotFound:
		e.Kind = fleet.KindNotFound
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		e.Kind = fleet.KindDenied
		e.Remedy = "let this computer reach " + u.Host + ", and check its clock: the link holds for " + strconv.Itoa(linkMinutes) + " minutes"
	case s == http.StatusTooManyRequests:
		e.Kind = fleet.KindThrottled
	case s >= 500:
		e.Kind = fleet.KindTransient
	default:
		e.Kind = fleet.KindInvalid
	}
	return nil, e
}

// unfollowed is a transport that does not follow redirects, as far as that can be
// told it; one that follows all the same is found out by whom its answer is of.
func unfollowed(t policy.Transporter) policy.Transporter {
	if client, ok := t.(*http.Client); ok {
		plain := *client
		plain.Jar = nil
		plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		return &plain
	}
	return t
}
