//go:build linux

package machine

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// shareKeys is the file of an account's keys. No share can have that name.
const shareKeys = "keys.sha256"

// What Azure accepts, see "Naming rules and restrictions for Azure resources" and
// "Naming and referencing shares": both are safe as names of folders.
var (
	accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	shareName   = regexp.MustCompile(`^[a-z0-9-]{3,63}$`)
)

func (s *Substrate) sharesDir() string { return filepath.Join(s.dir, "shares") }

func (s *Substrate) accountDir(account string) (string, error) {
	if !accountName.MatchString(account) {
		return "", fmt.Errorf("storage account %q: not a name of 3 to 24 lower-case letters and digits", account)
	}
	return filepath.Join(s.sharesDir(), account), nil
}

// PutShare makes a file share, which all machines see at once, running or not, in
// /run/platform/shares/ACCOUNT/SHARE. One that is there stays as it is, and
// outlives machines and the Substrate until DeleteAccount.
func (s *Substrate) PutShare(account, share string) error {
	dir, err := s.accountDir(account)
	if err != nil {
		return err
	}
	if !shareName.MatchString(share) {
		return fmt.Errorf("file share %q: not a name of 3 to 63 lower-case letters, digits and hyphens", share)
	}
	s.sharing.Lock()
	defer s.sharing.Unlock()
	return os.MkdirAll(filepath.Join(dir, share), 0o755)
}

// SetKeys replaces the account's keys. Machines see their SHA-256 digests, by which
// the lab's mount.cifs checks a password (hack/lab/mount.cifs).
func (s *Substrate) SetKeys(account string, keys []string) error {
	dir, err := s.accountDir(account)
	if err != nil {
		return err
	}
	var digests strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&digests, "%x\n", sha256.Sum256([]byte(k)))
	}
	s.sharing.Lock()
	defer s.sharing.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, shareKeys)
	if err := os.WriteFile(file+".part", []byte(digests.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".part", file)
}

// DeleteAccount deletes the account's keys and all that is in its shares. An unknown
// account is no error.
func (s *Substrate) DeleteAccount(account string) error {
	dir, err := s.accountDir(account)
	if err != nil {
		return err
	}
	s.sharing.Lock()
	defer s.sharing.Unlock()
	return os.RemoveAll(dir)
}
