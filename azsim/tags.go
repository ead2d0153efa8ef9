package azsim

import "strings"

// What Azure allows of tags (documentation of Azure Resource Manager, "Use tags",
// limitations).
const (
	maxTags         = 50
	maxTagName      = 512
	maxTagValue     = 256
	tagNameReserved = `<>%&\?/`
)

// checkTags refuses what Azure refuses of a body's tags.
func checkTags(tree any) error {
	body, _ := tree.(map[string]any)
	tags, _ := body["tags"].(map[string]any)
	if len(tags) > maxTags {
		return badRequest("TooManyTags", "Invalid operation for resource. The number of tags %d has exceeded the maximum number of tags allowed (%d).", len(tags), maxTags)
	}
	var reserved []string
	for _, name := range sortedKeys(tags) {
		text, _ := tags[name].(string)
		switch {
		case strings.ContainsAny(name, tagNameReserved) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }):
			reserved = append(reserved, name)
		case len(name) > maxTagName:
			return badRequest("InvalidTagName", "The tag name is longer than %d characters.", maxTagName)
		case len(text) > maxTagValue:
			return badRequest("InvalidTagValueLength", "Tag value too large. The value of tag '%s' may have %d characters at most.", name, maxTagValue)
		}
	}
	if len(reserved) > 0 {
		return badRequest("InvalidTagNameCharacters", "The tag names '%s' have reserved characters '<,>,%%,&,\\,?,/' or control characters.", strings.Join(reserved, ","))
	}
	return nil
}
