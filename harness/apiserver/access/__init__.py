"""Who a client is and what it may do: certificates, tokens, identities and role-based access control.

Here: the certificate authority, credentials and kubeconfigs, service account tokens, RBAC, reviews, the rules against
privilege escalation, the checks of CertificateSigningRequests. Not here: the controllers that sign (`controllers`).
"""
