package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/elastic/lifecycle"
	"github.com/ortet/ortet/internal/elastic/recipe"
)

// parametersSchema is the schema of a parameters file, as the Azure CLI reads it.
const parametersSchema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#"

func newClusterExport(c *clusterOptions) *cobra.Command {
	var own []string
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the templates and cloud-init documents of the cluster",
		Long: `export writes what up deploys, for az deployment group create and for reading: two
templates with their parameters, and the cloud-init documents of the machines. It asks
Azure for nothing, so the documents are those of a cluster that does not exist yet.`,
		Args: oneArgument("the directory to write to"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkAddresses(own); err != nil {
				return err
			}
			cluster, err := c.read()
			if err != nil {
				return err
			}
			key, err := c.publicKey(cluster)
			if err != nil {
				return err
			}
			d, err := recipe.Render(cluster, recipe.Facts{SSHPublicKey: key, OwnAddresses: own})
			if err != nil {
				return err
			}
			files, err := exported(d)
			if err != nil {
				return err
			}
			files = append(files, exportedFile{"README", []byte(exportReadme(cluster, d))})
			var names []string
			for _, f := range files {
				name := filepath.Join(args[0], f.name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // holds no secret
					return fmt.Errorf("cannot make directory: %w", err)
				}
				if err := os.WriteFile(name, f.data, 0o644); err != nil { //nolint:gosec // holds no secret
					return fmt.Errorf("cannot write file: %w", err)
				}
				names = append(names, name)
			}
			return c.print(map[string][]string{"files": names}, func(w io.Writer) {
				for _, n := range names {
					fmt.Fprintln(w, n)
				}
			})
		},
	}
	cmd.Flags().StringArrayVar(&own, "own-address", nil, "`ADDRESS` or range that \"own\" in cluster.yaml stands for; may be given several times")
	return cmd
}

type exportedFile struct {
	name string
	data []byte
}

func exported(d *recipe.Documents) (files []exportedFile, err error) {
	add := func(name string, value any) error {
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
		files = append(files, exportedFile{name, append(data, '\n')})
		return nil
	}
	for _, v := range []struct {
		name string
		d    recipe.Deployment
	}{{"storage", d.Storage}, {"compute", d.Compute}} {
		values := map[string]any{}
		for name, value := range v.d.Parameters {
			values[name] = map[string]any{"value": value}
		}
		if err := add(v.name+".json", v.d.Template); err != nil {
			return nil, err
		}
		if err := add(v.name+".parameters.json", map[string]any{"$schema": parametersSchema, "contentVersion": "1.0.0.0", "parameters": values}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.CloudInit)) {
		files = append(files, exportedFile{filepath.Join("cloud-init", name+".yaml"), d.CloudInit[name]})
	}
	return files, nil
}

// exportReadme lists the commands that deploy the files. The groups' tags let the
// other commands of ortet cluster know their cluster.
func exportReadme(c *elastic.Cluster, d *recipe.Documents) string {
	out := "Deploy the storage group first; the compute group refers to its identities.\n"
	for _, v := range []struct {
		role string
		d    recipe.Deployment
	}{{lifecycle.RoleStorage, d.Storage}, {lifecycle.RoleCompute, d.Compute}} {
		out += "\n"
		if v.role == lifecycle.RoleCompute || !c.Spec.Storage.Existing {
			out += fmt.Sprintf("az group create --name %s --location %s --tags %s=%s %s=%s\n",
				v.d.Group, c.Spec.Location, recipe.TagCluster, c.Metadata.Name, recipe.TagRole, v.role)
		}
		out += fmt.Sprintf("az deployment group create --resource-group %s --name %s --template-file %s.json --parameters @%s.parameters.json\n",
			v.d.Group, recipe.DeploymentName, v.role, v.role)
	}
	return out + "\nOnce the server exists, add --parameters serverExists=true to the last command:\nAzure refuses another cloud-init document for a virtual machine.\n"
}
