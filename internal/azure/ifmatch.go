package azure

import "context"

type ifMatch struct{}

// IfMatch has Resources.Send change a resource only while it has the ETag: what others
// changed since is a conflict with code PreconditionFailed. "" is any.
func IfMatch(ctx context.Context, etag string) context.Context {
	return context.WithValue(ctx, ifMatch{}, etag)
}

// MatchOf returns the ETag of IfMatch, or "".
func MatchOf(ctx context.Context) string {
	etag, _ := ctx.Value(ifMatch{}).(string)
	return etag
}
