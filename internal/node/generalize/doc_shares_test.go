package generalize

import "strings"

// formsText says what the rules by form look at.
func formsText() string {
	return marked(`
Three things besides a value make it a secret:

- its name: ^password^, ^token^, ^…_KEY^; before ^=^, ^:^, ^=>^ or a blank, in a tag or an attribute of XML, in the line above
- the program or call that is given it: ^-p^, ^--token^, ^user%password^, ^echo … | realm join^, ^auth=('user', '…')^
- its file: ^.netrc^, ^rsyncd.secrets^, and files that hold one word and are named for it (^db_password^, ^.secret^, ^token^).

Names and files of one word are not looked at in binary files, such as databases. What sops, eyaml and Sealed Secrets have encrypted, and
references of Terraform (^var.…^, ^local.…^, ^module.…^), are no secrets.

Lists of packages and logs of their installation (^/var/lib/apt/lists/^, ^/var/lib/dpkg/^, ^/var/cache/apt/^, ^/var/log/dpkg.log^,
^/var/log/apt/history.log^, ^/var/log/bootstrap.log^, and dnf's) are searched for known tokens alone. Documents, templates and examples
are searched for tokens and private keys alone.
`)
}

// sharesText is what test/secrets measures, by kind: run it again when rules change.
func sharesText() string {
	return marked(`### Share found, by kind

^go test ./test/secrets -run TestImage -v^ plants 373 secrets in files of their own, has the agent generalise the disk,
and counts what is refused or removed. But for its last two kinds the corpus was written without knowledge of the rules, which were then
extended until they found all: shares for formats that neither has met are lower.

| corpus, by class | planted | found | share |
|---|---|---|---|
| **node identity** | 138 | 138 | 100 % |
| **pool credential** | 32 | 32 | 100 % |
| **other secret** | 203 | 203 | 100 % |

Planted, and all found: kubelet's client key (85), kubelet's serving key (4), SSH host key (14), node password of k3s (18), kubeadm token (12), k3s or RKE2 token (7), Azure client secret (8), registry credential (15), shared client key (5), Azure storage key or signature (9), secret of an extension (3), token of a forge (11), token of a package registry (9), token of a chat or pager (7), key of a service (23), AWS key (5), Google key (3), Azure key or token (9), service account's token (6), password of a program (33), history of a shell (6), secret in a script (16), secret in a unit or environment file (10), private key (26), database's credential (12), identity of another agent (11), store of tokens (6).

The corpora held out (^-run TestHeldOutImage^) and blind (^-run TestBlind^, after 2026-11-23) were written without having read the rules,
and run once before anything was mended. The second also plants what this page lists as not found; ^blindNotFound^ in
^test/secrets/blind_test.go^ lists what is still missed. Of the corpus held out that is a password in a note.

| corpus, by class | planted | found at the first run | found now |
|---|---|---|---|
| held out: node identity | 61 | 58 (95 %) | 61 |
| held out: pool credential | 16 | 16 (100 %) | 16 |
| held out: other secret | 85 | 84 (99 %) | 84 |
| blind: node identity | 111 | 99 (89 %) | 103 (93 %) |
| blind: pool credential | 42 | 37 (88 %) | 42 |
| blind: other secret | 169 | 159 (94 %) | 166 (98 %) |

` + "`-run TestAttacked`" + ` plants what an attack on the scan found later and no rule knew, such as Postgres' verifiers, NVMe's and age's
post-quantum keys, Consul's keyring and ASP.NET's master key. Each is refused.

| false alarms (^TestNearMisses^, ^TestCleanTrees^) | files | alarms |
|---|---|---|
| files that look like secrets and hold none | 83 | 0 |
| the same, held out, at the first run (a path behind ^TOKEN_FILE=^); none now | 44 | 1 |
| the same, blind corpus, at the first run; none now | 68 | 6 |
| trees of a Debian system: configuration, units and scripts, programs, documents, libraries | 15,127 | 1 |
| the root of a new Debian 12 | 11,106 | 0 |

The one alarm is the API key of Google's that Debian's Chromium ships in ^/etc^.

`)
}

// marked gives a text its marks of code, which a Go literal cannot hold.
func marked(text string) string { return strings.ReplaceAll(text, "^", "\x60") }
