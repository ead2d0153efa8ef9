package draw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ortet/ortet/internal/boots/timeline"
)

// Collector takes traces by OTLP over HTTP, as Jaeger, Tempo and OpenTelemetry's
// own collector do, on port 4318 by default.
type Collector struct {
	// URL is where: http or https. Without a path it gets /v1/traces.
	URL    string
	Client *http.Client
	Header http.Header // more headers, such as Authorization
	// Resource are attributes that are not in the timeline (see Trace).
	Resource map[string]string
}

const (
	sendTime  = 30 * time.Second
	maxAnswer = 64 << 10
)

// Send exports a boot. It takes up to half a minute, tries once, and is idempotent: the
// trace is the same.
func (c Collector) Send(ctx context.Context, t timeline.Timeline) error {
	to, err := c.endpoint()
	if err != nil {
		return err
	}
	trace, err := Trace(t, c.Resource)
	if err != nil {
		return err
	}
	body, err := proto.Marshal(trace)
	if err != nil {
		return fmt.Errorf("encode the trace: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send the trace to %s: %w", to.Redacted(), err)
	}
	for name, values := range c.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // the message has the address, without its password
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s: %w", sendTime, err)
		}
		return fmt.Errorf("send the trace to %s: %w", to.Redacted(), err)
	}
	answer, readErr := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(readErr, resp.Body.Close()); err != nil {
		return fmt.Errorf("read the answer of %s: %w", to.Redacted(), err)
	}
	return judge(to, resp, answer)
}

func (c Collector) endpoint() (*url.URL, error) {
	to, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("the collector's address cannot be read: %w", errors.Unwrap(err))
	}
	if (to.Scheme != "http" && to.Scheme != "https") || to.Host == "" {
		return nil, fmt.Errorf("the collector's address %s is none of http or https, such as http://localhost:4318", to.Redacted())
	}
	if to.Path == "" || to.Path == "/" {
		to.Path = "/v1/traces"
	}
	return to, nil
}

// judge reads what a collector answered.
func judge(to *url.URL, resp *http.Response, answer []byte) error {
	if resp.StatusCode/100 != 2 {
		what := statusMessage(resp.Header.Get("Content-Type"), answer)
		if what != "" {
			what = ": " + what
		}
		hint := ""
		switch resp.StatusCode {
		case http.StatusNotFound, http.StatusMethodNotAllowed:
			hint = "; is that the port of OTLP over HTTP (4318 by default), and the path /v1/traces?"
		case http.StatusUnauthorized, http.StatusForbidden:
			hint = "; it wants other headers"
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			hint = "; it may take it later"
		}
		return fmt.Errorf("send the trace to %s: %s%s%s", to.Redacted(), resp.Status, what, hint)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf") {
		return nil // taken; there is nothing to read
	}
	var told collectorpb.ExportTraceServiceResponse
	if err := proto.Unmarshal(answer, &told); err != nil {
		return fmt.Errorf("read the answer of %s: %w", to.Redacted(), err)
	}
	if n := told.GetPartialSuccess().GetRejectedSpans(); n > 0 {
		return fmt.Errorf("send the trace to %s: %d of its spans were rejected: %s", to.Redacted(), n, printable(told.GetPartialSuccess().GetErrorMessage()))
	}
	return nil
}

// statusMessage is a collector's error message: that of a google.rpc.Status, its field 2,
// or else the text.
func statusMessage(kind string, answer []byte) string {
	if strings.HasPrefix(kind, "application/x-protobuf") {
		for len(answer) > 0 {
			number, of, n := protowire.ConsumeTag(answer)
			if n < 0 {
				return ""
			}
			answer = answer[n:]
			if number == 2 && of == protowire.BytesType {
				message, n := protowire.ConsumeString(answer)
				if n < 0 {
					return ""
				}
				return printable(message)
			}
			if n = protowire.ConsumeFieldValue(number, of, answer); n < 0 {
				return ""
			}
			answer = answer[n:]
		}
		return ""
	}
	if len(answer) > 300 {
		answer = answer[:300]
	}
	return strings.TrimSpace(printable(string(answer)))
}
