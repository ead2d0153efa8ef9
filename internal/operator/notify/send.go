package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"
)

// SignatureHeader has sha256=HEX, the HMAC-SHA256 of the body by the secret.
const SignatureHeader = "X-Ortet-Signature"

// Limits of sending.
const (
	queued    = 100              // events; of more the newest are dropped
	perTry    = 10 * time.Second // until the answer is there
	tries     = 6
	firstWait = 2 * time.Second  // after a try that failed; each further wait is four times as long
	maxSecret = 4 << 10          // bytes of its file
	flush     = 10 * time.Second // for what is in the queue when the context ends
)

// A Sender posts events to one URL, one after another. Its methods are safe for concurrent use.
type Sender struct {
	url, secretFile string
	client          *http.Client
	log             *slog.Logger
	queue           chan Event
}

// Config is what a Sender works with. URL and Log are required.
type Config struct {
	URL        string // https, or http of a loopback address
	SecretFile string // with the key of signatures, read at each request; "" is none
	Log        *slog.Logger
	Transport  http.RoundTripper // nil: http.DefaultTransport
}

// Check refuses a URL over which bodies could be read or changed, and a secret that cannot be read. The
// error does not have the URL, which may hold a token.
func (c Config) Check() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return errors.New("want a URL such as https://hooks.example/ortet")
	case u.User != nil:
		return errors.New("the URL has a user name; the receiver knows Ortet by the signature of a secret file")
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return fmt.Errorf("scheme %q: want https; http is for loopback addresses alone", u.Scheme)
	}
	_, err = c.secret()
	return err
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// secret reads the key, without the line break at its end. It is read each time, since the kubelet
// replaces the file of a Secret that was changed.
func (c Config) secret() ([]byte, error) {
	if c.SecretFile == "" {
		return nil, nil
	}
	key, err := os.ReadFile(c.SecretFile)
	if err != nil {
		return nil, err
	}
	if key = bytes.TrimRight(key, "\r\n"); len(key) < 16 || len(key) > maxSecret {
		return nil, fmt.Errorf("%s has %d bytes; want 16 to %d, such as openssl rand -hex 32 prints", c.SecretFile, len(key), maxSecret)
	}
	return key, nil
}

// New makes a Sender of a Config that Check accepts. Run sends.
func New(c Config) *Sender {
	s := &Sender{url: c.URL, secretFile: c.SecretFile, log: c.Log, queue: make(chan Event, queued)}
	s.client = &http.Client{Timeout: perTry, Transport: c.Transport,
		// Another host would get what this one is trusted with.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if c.Transport == nil {
		s.client.Transport = http.DefaultTransport
	}
	return s
}

// Send queues events. It never blocks: what does not fit is dropped, with a line in the log. It is safe
// with a nil Sender, which drops all.
func (s *Sender) Send(events []Event) {
	if s == nil {
		return
	}
	for _, e := range events {
		select {
		case s.queue <- e:
		default:
			s.log.Warn("notification dropped: queue full", "event", e.Event, "pool", e.Pool)
		}
	}
}

// Run sends until ctx ends, and then tries once for each event that is left, for 10 seconds in all.
func (s *Sender) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e := <-s.queue:
			s.deliver(ctx, e)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flush)
	defer cancel()
	for {
		select {
		case e := <-s.queue:
			if _, err := s.post(last, e); err != nil {
				s.log.Warn("notification not sent", "event", e.Event, "pool", e.Pool, "error", err)
			}
		default:
			return
		}
	}
}

// deliver tries until the receiver has the event, or will not take it. An end of ctx puts it back.
func (s *Sender) deliver(ctx context.Context, e Event) {
	wait := firstWait
	for try := 1; ; try++ {
		again, err := s.post(ctx, e)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			s.Send([]Event{e})
			return
		case !again || try == tries:
			s.log.WarnContext(ctx, "notification not sent", "event", e.Event, "pool", e.Pool, "tries", try, "error", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait *= 4
	}
}

// post sends an event once, and reports whether another try may help. Errors do not have the URL.
func (s *Sender) post(ctx context.Context, e Event) (again bool, err error) {
	body, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "ortet")
	key, err := Config{SecretFile: s.secretFile}.secret()
	if err != nil {
		return true, err
	}
	if key != nil {
		mac := hmac.New(sha256.New, key)
		mac.Write(body)
		request.Header.Set(SignatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	answer, err := s.client.Do(request)
	if err != nil {
		var in *url.Error
		if errors.As(err, &in) {
			err = in.Err
		}
		return true, err
	}
	answer.Body.Close()
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		return false, nil
	case code >= 300 && code < 400:
		return false, fmt.Errorf("answered %d, and redirects are not followed: give the URL that it leads to", code)
	default:
		return code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout, fmt.Errorf("answered %d", code)
	}
}
