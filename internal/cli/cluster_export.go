package cli

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

func newClusterExport(c *clusterOptions) *cobra.Command {
	var own ownAddresses
	cmd := clusterCommand("export DIR", "Write the templates and cloud-init documents of the cluster", `export writes what up deploys, for az deployment group create and for reading: two
templates with their parameters, and the cloud-init documents of the machines. It asks
Azure for nothing, so the documents are those of a cluster that does not exist yet.`, func(ctx context.Context, args []string) error {
		s, err := c.open(ctx, &own)
		if err != nil {
			return err
		}
		d, err := recipe.Render(s.cluster, s.facts)
		if err != nil {
			return err
		}
		files, err := exported(d, s.cluster)
		if err != nil {
			return err
		}
		names := []string{}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			name := filepath.Join(args[0], file)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return fmt.Errorf("cannot make directory: %w", err)
			}
			if err := os.WriteFile(name, files[file], 0o644); err != nil {
				return fmt.Errorf("cannot write file: %w", err)
			}
			names = append(names, name)
		}
		return c.print(map[string][]string{"files": names}, func(w io.Writer) { fmt.Fprintln(w, strings.Join(names, "\n")) })
	})
	own.add(cmd)
	return cmd
}

// exported are the files of export, by name. The README's tags of groups let the other
// commands of ortet cluster know their cluster.
func exported(d *recipe.Documents, c *k3s.Cluster) (map[string][]byte, error) {
	files := map[string][]byte{}
	readme := "Deploy the storage group first; the compute group refers to its identities.\n"
	for _, v := range []struct {
		role string
		d    recipe.Deployment
	}{{lifecycle.RoleStorage, d.Storage}, {lifecycle.RoleCompute, d.Compute}} {
		values := map[string]any{}
		for name, value := range v.d.Parameters {
			values[name] = map[string]any{"value": value}
		}
		// As the Azure CLI reads it.
		parameters := map[string]any{
			"$schema":        "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
			"contentVersion": "1.0.0.0", "parameters": values,
		}
		for name, value := range map[string]any{v.role + ".json": v.d.Template, v.role + ".parameters.json": parameters} {
			data, err := json.MarshalIndent(value, "", "  ")
			if err != nil {
				return nil, fmt.Errorf("cannot write %s: %w", name, err)
			}
			files[name] = append(data, '\n')
		}
		readme += "\n"
		if v.role == lifecycle.RoleCompute || !c.Spec.Storage.Existing {
			readme += fmt.Sprintf("az group create --name %s --location %s --tags %s=%s %s=%s\n",
				v.d.Group, c.Spec.Location, recipe.TagCluster, c.Metadata.Name, recipe.TagRole, v.role)
		}
		readme += fmt.Sprintf("az deployment group create --resource-group %s --name %s --template-file %[3]s.json --parameters @%[3]s.parameters.json\n",
			v.d.Group, recipe.DeploymentName, v.role)
	}
	files["README"] = []byte(readme + fmt.Sprintf(`
Once disk %[3]s exists, add --parameters stateExists=true to the deployment of the
storage group, and once the server exists, --parameters serverExists=true to that of the
compute group: what a disk was made of and a cloud-init document cannot be changed. The
server takes over other settings while it runs:

az vm update --resource-group %[1]s --name %[2]s --user-data @settings.json
`, d.Compute.Group, recipe.ServerName, recipe.StateDisk))
	files["settings.json"] = append(slices.Clone(d.Settings), '\n')
	for name, document := range d.CloudInit {
		text, err := readable(document)
		if err != nil {
			return nil, fmt.Errorf("cannot write cloud-init document %s: %w", name, err)
		}
		files[filepath.Join("cloud-init", name+".yaml")] = text
	}
	return files, nil
}

// readable is a cloud-config document whose files are not compressed.
func readable(document []byte) ([]byte, error) {
	var config map[string]any
	if err := yaml.Unmarshal(document, &config); err != nil {
		return nil, err
	}
	list, _ := config["write_files"].([]any)
	for _, v := range list {
		file, _ := v.(map[string]any)
		content, _ := file["content"].(string)
		if file["encoding"] != "gz+b64" {
			continue
		}
		z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(content)))
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(z)
		if err != nil {
			return nil, err
		}
		file["content"] = string(text)
		delete(file, "encoding")
	}
	text, err := yaml.Marshal(config)
	return append([]byte("#cloud-config\n# For reading: customData has the same, its files compressed.\n"), text...), err
}
