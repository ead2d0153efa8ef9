package azsim

import (
	"maps"
	"net/http"
	"reflect"
	"strings"
)

func tagsVersions() []string {
	return []string{"2019-10-01", "2020-06-01", "2020-10-01", "2021-01-01", "2021-04-01", "2022-09-01", "2023-07-01", "2024-03-01", "2024-07-01", "2024-11-01", "2025-04-01"}
}

// tagsOf reads the tags of any resource or resource group.
func tagsOf(e *entry) map[string]string {
	out := map[string]string{}
	switch body := e.body.(type) {
	case *group:
		maps.Copy(out, body.Tags)
	case object:
		tags, _ := body["tags"].(object)
		for k := range tags {
			out[k] = text(tags, k)
		}
	default:
		if v := field(e.body, "Tags", false); v.IsValid() {
			if m, isTags := v.Interface().(map[string]*string); isTags {
				for k, p := range m {
					out[k] = val(p)
				}
			}
		}
	}
	return out
}

func setTagsOf(e *entry, tags map[string]string) {
	tree, pointers := object{}, map[string]*string{}
	for k, v := range tags {
		tree[k], pointers[k] = v, ptr(v)
	}
	switch body := e.body.(type) {
	case *group:
		body.Tags = tags
	case object:
		body["tags"] = tree
	default:
		if v := field(e.body, "Tags", true); v.IsValid() && v.CanSet() {
			if _, isTags := v.Interface().(map[string]*string); isTags {
				v.Set(reflect.ValueOf(pointers))
			}
		}
	}
}

// tagged finds what the tags of a request's scope lie on.
func (c *call) tagged() (*entry, error) {
	if c.id.name() != "default" {
		return nil, badRequest("InvalidTagsResourceName", "The name of the tags resource is 'default', not '%s'.", c.id.name())
	}
	e := c.s.findID(c.id.root())
	if e == nil {
		scope, err := parseID(c.id.root())
		if err != nil {
			return nil, refuse(http.StatusNotFound, "NotFound", "azsim keeps tags of resource groups and resources, not of '%s'.", c.id.root())
		}
		return nil, notFound(scope)
	}
	return e, nil
}

func (c *call) showTags(e *entry) *reply {
	return ok(object{"id": e.id.String() + "/providers/Microsoft.Resources/tags/default", "name": "default", "type": "Microsoft.Resources/tags",
		"properties": object{"tags": tagsOf(e)}})
}

func getTags(c *call) (*reply, error) {
	e, err := c.tagged()
	if err != nil {
		return nil, err
	}
	return c.showTags(e), nil
}

// writeTags is PUT, PATCH and DELETE of a scope's tags.
func writeTags(c *call) (*reply, error) {
	e, err := c.tagged()
	if err != nil {
		return nil, err
	}
	if c.r.Method == http.MethodDelete {
		setTagsOf(e, nil)
		return &reply{status: http.StatusOK}, nil
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	given, _ := at(tree, "properties", "tags").(object)
	tags, operation := tagsOf(e), strings.ToLower(text(tree, "operation"))
	if c.r.Method == http.MethodPut {
		operation = "replace"
	}
	switch operation {
	case "replace":
		clear(tags)
		fallthrough
	case "merge":
		for k := range given {
			maps.DeleteFunc(tags, func(have, _ string) bool { return strings.EqualFold(have, k) })
			tags[k] = text(given, k)
		}
	case "delete":
		for k := range given {
			maps.DeleteFunc(tags, func(have, value string) bool {
				return strings.EqualFold(have, k) && (text(given, k) == "" || text(given, k) == value)
			})
		}
	default:
		return nil, badRequest("InvalidTagPatchOperation", "The tag operation '%s' is invalid: want Merge, Replace or Delete.", text(tree, "operation"))
	}
	check := object{}
	for k, v := range tags {
		check[k] = v
	}
	if err := checkTags(object{"tags": check}); err != nil {
		return nil, err
	}
	setTagsOf(e, tags)
	return c.showTags(e), nil
}
