package hollow

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// customDataLimit is Azure's bound on customData, decoded; unpacked it may be a
// good deal more, but not without end.
const (
	customDataLimit = 64 << 10
	unpackedLimit   = 8 << 20
)

// cloudConfig is what we understand of a #cloud-config.
type cloudConfig struct {
	WriteFiles []writeFile `json:"write_files"`
	RunCmd     []any       `json:"runcmd"`
	BootCmd    []any       `json:"bootcmd"`
}

type writeFile struct {
	Path        string `json:"path"`
	Content     string `json:"content"`
	Encoding    string `json:"encoding"`
	Permissions any    `json:"permissions"`
	Append      bool   `json:"append"`
}

// parseCustomData reads customData as cloud-init does. A script or another
// format gives an empty configuration and does == true; data that asks for
// nothing, like "#cloud-config\n", gives does == false.
func parseCustomData(data []byte) (config cloudConfig, does bool, err error) {
	if len(data) > customDataLimit {
		return config, false, fmt.Errorf("customData has %d bytes, more than Azure's %d", len(data), customDataLimit)
	}
	if data, err = gunzip(data); err != nil {
		return config, false, err
	}
	text := bytes.TrimSpace(data)
	if len(text) == 0 {
		return config, false, nil
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	if bytes.HasPrefix(first, []byte("## template:")) {
		first, _, _ = bytes.Cut(rest, []byte("\n"))
	}
	if string(bytes.TrimSpace(first)) != "#cloud-config" {
		return config, true, nil
	}
	var keys map[string]any
	if err := yaml.Unmarshal(text, &keys); err != nil {
		return config, false, fmt.Errorf("cloud-config: %w", err)
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return config, len(keys) > 0, fmt.Errorf("cloud-config: %w", err)
	}
	return config, len(keys) > 0, nil
}

func gunzip(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(reader, unpackedLimit+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > unpackedLimit {
		return nil, fmt.Errorf("compressed data unpacks to more than %d bytes", unpackedLimit)
	}
	return plain, nil
}

// decode returns the file's content and mode.
func (f writeFile) decode() ([]byte, fs.FileMode, error) {
	mode := fs.FileMode(0o644)
	switch p := f.Permissions.(type) {
	case nil:
	case string:
		bits, err := strconv.ParseUint(strings.TrimPrefix(p, "0o"), 8, 12)
		if err != nil {
			return nil, 0, fmt.Errorf("permissions %q: %w", p, err)
		}
		mode = fs.FileMode(bits) & fs.ModePerm
	case float64:
		// YAML read an octal number such as 0644 already.
		if p < 0 || p > 0o7777 || p != float64(int(p)) {
			return nil, 0, fmt.Errorf("permissions %v are none", p)
		}
		mode = fs.FileMode(int(p)) & fs.ModePerm
	default:
		return nil, 0, errors.New("permissions are neither text nor a number")
	}
	content := []byte(f.Content)
	encoding := strings.ToLower(f.Encoding)
	if strings.Contains(encoding, "b64") || strings.Contains(encoding, "base64") {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), ""))
		if err != nil {
			return nil, 0, fmt.Errorf("content: %w", err)
		}
		content = decoded
	}
	if strings.HasPrefix(encoding, "gz") {
		plain, err := gunzip(content)
		if err != nil {
			return nil, 0, fmt.Errorf("content: %w", err)
		}
		content = plain
	}
	return content, mode, nil
}

// apply writes the configuration's files. As with cloud-init, a file that cannot
// be written does not keep the others from being written.
func (config cloudConfig) apply(t tree) error {
	var errs []error
	for _, f := range config.WriteFiles {
		if !strings.HasPrefix(f.Path, "/") {
			errs = append(errs, fmt.Errorf("write_files: path %q is not absolute", f.Path))
			continue
		}
		content, mode, err := f.decode()
		if err == nil && f.Append {
			err = t.appendFile(f.Path, content, mode)
		} else if err == nil {
			err = t.writeFile(f.Path, content, mode)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write_files: %s: %w", f.Path, err))
		}
	}
	return errors.Join(errs...)
}
