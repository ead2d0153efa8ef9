package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

const (
	consoleTimeout = 2 * time.Second
	postTries      = 3
	postTimeout    = 5 * time.Second
	postPause      = time.Second
)

// tellConsole writes the verdict's line in one write, on a line of its own. A
// console that takes nothing is given up on.
func tellConsole(path string, v wire.Verdict) error {
	line := v.ConsoleLine()
	if line == "" {
		return errors.New("the verdict does not fit a console's line")
	}
	// It is written to only if it is there: no console is no reason for a file.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|openFlags, 0)
	if err != nil {
		return err
	}
	err = f.SetWriteDeadline(time.Now().Add(consoleTimeout))
	if err == nil || errors.Is(err, os.ErrNoDeadline) {
		_, err = f.WriteString("\n" + line + "\n")
	}
	return errors.Join(err, f.Close())
}

// Post sends JSON to a server, in a few tries of postTimeout each. caFile has the
// certificates that it is checked against; "": the system's.
func Post(ctx context.Context, target, caFile string, body []byte) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return fmt.Errorf("reading the certificates for %s: %w", u.Host, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s holds no PEM certificate", caFile)
		}
	}
	for try := 1; ; try++ {
		a, err := exchange(ctx, Question{Method: "POST", URL: u, TLS: config, Within: postTimeout, Type: "application/json", Body: body})
		if a.Code/100 == 2 {
			return nil
		}
		if a.Code != 0 { // what was sent was answered, whatever became of the rest
			err = fmt.Errorf("%s answered %d", u.Host, a.Code)
		}
		// What was refused is refused the next time too.
		if refused := a.Code/100 == 4 && a.Code != 408 && a.Code != 429; refused || try == postTries {
			return fmt.Errorf("posting to %s, try %d: %w", u.Host, try, err)
		}
		pause := time.NewTimer(postPause << (try - 1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, ctx.Err())
		case <-pause.C:
		}
	}
}
