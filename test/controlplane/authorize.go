package controlplane

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AwaitAccess returns when user may do all that is wanted. The API server learns of
// roles and of their bindings by watches of its own, a moment after they were made:
// until then it refuses what they allow.
func (cp *ControlPlane) AwaitAccess(ctx context.Context, user string, wanted []authorizationv1.ResourceAttributes) error {
	config, err := cp.RESTConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i := range wanted {
		for {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &wanted[i]},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("whether %s may do %+v: %w", user, wanted[i], err)
			}
			if review.Status.Allowed {
				break
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return fmt.Errorf("%s may not do %+v: %w", user, wanted[i], context.Cause(ctx))
			}
		}
	}
	return nil
}
