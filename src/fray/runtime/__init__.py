"""What runs inside a job's process or pod: standard library only, so that it fits into any image.

Code here never talks to the API server and never imports the client side of Fray.
"""
