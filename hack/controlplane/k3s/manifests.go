package k3s

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// deployManifests applies the folder's files at the start and when they change,
// until ctx ends. What is taken out of a file, or the file itself, leaves its
// objects in the cluster.
func deployManifests(ctx context.Context, kubeconfig, dir string, disabled []string) {
	applied := map[string][sha256.Size]byte{}
	visit := func(path string, entry fs.DirEntry, err error) error {
		extension := filepath.Ext(path)
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, extension) ||
			slices.Contains(disabled, strings.TrimSuffix(entry.Name(), extension)) {
			return err
		}
		if _, err := os.Stat(path + ".skip"); err == nil {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		if applied[path] == sum {
			return nil
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// One that fails, as for a kind that is not there yet, is tried again.
		if err := command(ctx, self, "kubectl", "--kubeconfig", kubeconfig, "apply", "--server-side", "--force-conflicts", "--field-manager=deploy@k3s", "-f", path); err != nil {
			logrus.Errorf("Failed to process config: failed to process %s: %v", path, err)
			return nil
		}
		applied[path] = sum
		logrus.Infof("Applied manifest %s", path)
		return nil
	}
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		if err := filepath.WalkDir(dir, visit); err != nil {
			logrus.Errorf("Failed to process config: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
