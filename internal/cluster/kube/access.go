package kube

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/cluster"
)

// reviewsAtOnce bounds how many reviews are under way.
const reviewsAtOnce = 4

// Denied asks for each access by a review of its own: the API reviews one at a
// time. The order is kept.
func (c *Cluster) Denied(ctx context.Context, accesses []cluster.Access) ([]cluster.Access, error) {
	refused := make([]bool, len(accesses))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, access := range accesses {
		group.Go(func() error {
			review, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(within, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: access.Verb, Group: access.Group, Resource: access.Resource, Subresource: access.Subresource,
					Namespace: access.Namespace, Name: access.Name,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			refused[i] = !review.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		a := act{op: "ask what these credentials may do",
			access: cluster.Access{Verb: "create", Group: authorizationv1.GroupName, Resource: "selfsubjectaccessreviews"}}
		return nil, a.fail(ctx, err)
	}
	var denied []cluster.Access
	for i, access := range accesses {
		if refused[i] {
			denied = append(denied, access)
		}
	}
	return denied, nil
}
